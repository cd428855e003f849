"""Measures the SDK against bare loops of http.client in the same run, and prints the ratios.

Usage: OUTLAST_BIN=… ratios.py [--seconds 4]. Each pair is measured in turns, and the median of the rounds counts.
"""

import argparse
import http.client
import json
import statistics
import sys
import threading
import time
import tracemalloc
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from outlast import Outlast, Worker
from outlast.testing import Server, start_outlast

ROUNDS = 3
BATCH = 500


class Bare:
    """One connection and nothing else: the limit that a program in this language has."""

    def __init__(self, server: Server) -> None:
        parts = urlsplit(server.url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
        self._headers = {"authorization": f"Bearer {server.key}", "content-type": "application/json"}

    def post(self, path: str, body: Any) -> Any:
        self._connection.request("POST", path, json.dumps(body), self._headers)
        return json.loads(self._connection.getresponse().read())


def fill(outlast: Outlast, count: int) -> str:
    """A fresh queue with so many jobs."""
    name = f"bench-{time.monotonic_ns()}"
    outlast.queues.create(name, visibility_timeout=300)
    outlast.queue(name).publish_many(range(count), size=1000)
    return name


def rate(call: Callable[[], int], seconds: float) -> float:
    """How many a second; the call gives how many it did."""
    done, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        done += call()
    return done / (time.perf_counter() - started)


def bare_work(server: Server, outlast: Outlast, seconds: float) -> float:
    """Receive one, ack it, again."""
    bare, queue = Bare(server), fill(outlast, int(4000 * seconds))

    def once() -> int:
        (job,) = bare.post(f"/v1/queues/{queue}/receive", {"batch": 1})["jobs"]
        bare.post(f"/v1/jobs/{job['id']}/ack", {"lease": job["lease"]})
        return 1

    return rate(once, seconds)


def worker_rate(outlast: Outlast, concurrency: int, seconds: float) -> float:
    """Jobs a second that one worker acks, with an empty handler."""
    queue = fill(outlast, int(12000 * seconds) if concurrency > 1 else int(4000 * seconds))
    acked = [0]

    def count(_job: Any, _outcome: Any) -> None:
        acked[0] += 1

    worker = Worker(outlast, on_end=count)
    worker.job(queue, concurrency=concurrency)(lambda job: None)
    thread = threading.Thread(target=worker.run)
    thread.start()
    while acked[0] == 0:
        time.sleep(0.001)
    before, started = acked[0], time.perf_counter()
    time.sleep(seconds)
    done, elapsed = acked[0] - before, time.perf_counter() - started
    worker.stop()
    thread.join()
    return done / elapsed


def bare_publish(server: Server, outlast: Outlast, seconds: float) -> float:
    bare, queue = Bare(server), fill(outlast, 0)

    def once() -> int:
        # The same request as the SDK sends: a key costs the server a lookup.
        bare.post(f"/v1/queues/{queue}/jobs", {"payload": {"n": 1}, "idempotencyKey": str(uuid.uuid4())})
        return 1

    return rate(once, seconds)


def publish(outlast: Outlast, seconds: float) -> float:
    queue = outlast.queue(fill(outlast, 0))
    return rate(lambda: len([queue.publish({"n": 1})]), seconds)


def bare_batch(server: Server, outlast: Outlast, seconds: float) -> float:
    bare, queue = Bare(server), fill(outlast, 0)

    def once() -> int:
        jobs = [{"payload": {"n": n}, "idempotencyKey": str(uuid.uuid4())} for n in range(BATCH)]
        return len(bare.post(f"/v1/queues/{queue}/jobs/batch", {"jobs": jobs})["jobs"])

    return rate(once, seconds)


def publish_many(outlast: Outlast, seconds: float) -> float:
    queue = outlast.queue(fill(outlast, 0))
    return rate(lambda: len(queue.publish_many(({"n": n} for n in range(BATCH)), size=BATCH)), seconds)


def stream_bytes(outlast: Outlast) -> float:
    """Bytes of Python memory per open stream."""
    queue = outlast.queue(fill(outlast, 0))
    job = queue.publish(None)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    streams = [job.events() for _ in range(50)]
    for stream in streams:
        next(stream)
    taken = (tracemalloc.get_traced_memory()[0] - before) / len(streams)
    tracemalloc.stop()
    for stream in streams:
        stream.close()  # type: ignore[attr-defined]
    return taken


def compare(name: str, goal: float | None, ours: Callable[[], float], limit: Callable[[], float]) -> bool:
    """Prints the medians and their ratio; true where the goal is reached."""
    pairs = [(ours(), limit()) for _ in range(ROUNDS)]
    mine, bare = (statistics.median(column) for column in zip(*pairs))
    verdict = "" if goal is None else f"  goal {goal:.2f}  {'ok' if mine / bare >= goal else 'MISSED'}"
    print(f"{name:32} {mine:10.0f}/s  bare {bare:10.0f}/s  ratio {mine / bare:5.2f}{verdict}", flush=True)
    return goal is None or mine / bare >= goal


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4.0)
    seconds = parser.parse_args().seconds
    with start_outlast() as server, Outlast(server.url, key=server.key) as outlast:
        bare = lambda: bare_work(server, outlast, seconds)  # noqa: E731 - the same limit for three rows
        reached = [
            compare("worker, concurrency 1", 0.8, lambda: worker_rate(outlast, 1, seconds), bare),
            compare("worker, concurrency 16", None, lambda: worker_rate(outlast, 16, seconds), bare),
            compare("worker, concurrency 64", 3.0, lambda: worker_rate(outlast, 64, seconds), bare),
            compare("publish", 0.85, lambda: publish(outlast, seconds), lambda: bare_publish(server, outlast, seconds)),
            compare("publish_many", 0.95, lambda: publish_many(outlast, seconds), lambda: bare_batch(server, outlast, seconds)),
        ]
        print(f"{'memory':32} {stream_bytes(outlast) / 1024:10.1f} KiB of Python per open stream")
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
