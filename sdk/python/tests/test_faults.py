"""Faults between the SDK and the real server: answers cut after each byte, a killed server, storms of 503, cut streams."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from conftest import IS_SOAK, running
from programs_support import wait_until
from proxy import Fault, Proxy, Recorded

from outlast import AsyncOutlast, InDoubt, Outlast, OutlastError, Unavailable, Worker
from outlast.core import retry
from outlast.testing import Server

NewQueue = Callable[..., str]


class CutFirst:
    """Cuts the first answer to a matching request after so many bytes."""

    def __init__(self, method: str, end: str) -> None:
        self._method = method
        self._end = end
        self.bytes_left: int | None = None

    def choose(self, recorded: Recorded) -> Fault | None:
        if self.bytes_left is None or recorded.method != self._method or not recorded.path.endswith(self._end):
            return None
        fault, self.bytes_left = Fault(cut_raw=self.bytes_left), None
        return fault


def count_jobs(outlast: Outlast, queue: str) -> int:
    return sum(outlast.queues.get(queue).counts.values())


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of lost answers would spend minutes in the waits between tries; the rules stay the same."""
    monkeypatch.setattr(retry, "DELAY_MIN", 0.001)
    monkeypatch.setattr(retry, "DELAY_MAX", 0.05)


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "async"])
def test_a_publish_cut_after_each_byte_makes_one_job(
    server: Server, outlast: Outlast, new_queue: NewQueue, is_async: bool
) -> None:
    queue, cut = new_queue(), CutFirst("POST", "/jobs")
    proxy = Proxy(server.url, cut.choose)
    loop = asyncio.new_event_loop()
    blocking = Outlast(proxy.url, key=server.key)
    in_loop = AsyncOutlast(proxy.url, key=server.key)

    def publish(n: int) -> Any:
        if is_async:
            return loop.run_until_complete(in_loop.queue(queue).publish(n))
        return blocking.queue(queue).publish(n)

    ids = set()
    places = range(560)
    for place in places:
        cut.bytes_left = place
        job = publish(place)
        assert job.duplicate is False, place
        ids.add(job.id)
    loop.run_until_complete(in_loop.close())
    loop.close()
    proxy.close()

    assert len(ids) == len(places)
    assert count_jobs(outlast, queue) == len(places)
    assert len(proxy.requests) > len(places) * 1.5


def test_a_batch_cut_after_each_byte_makes_each_job_once(server: Server, outlast: Outlast, new_queue: NewQueue) -> None:
    queue, cut = new_queue(), CutFirst("POST", "/batch")
    proxy = Proxy(server.url, cut.choose)
    client = Outlast(proxy.url, key=server.key)

    ids = set()
    places = range(0, 900, 1 if IS_SOAK else 3)
    for place in places:
        cut.bytes_left = place
        answers = client.queue(queue).publish_many([place, place])
        assert [answer.duplicate for answer in answers] == [False, False]
        ids.update(answer.id for answer in answers)
    proxy.close()

    assert len(ids) == 2 * len(places)
    assert count_jobs(outlast, queue) == 2 * len(places)


def test_an_outcome_cut_after_each_byte_is_stored_once(server: Server, outlast: Outlast, new_queue: NewQueue) -> None:
    """No outcome is lost, and no job is handed out twice, although the first answer to each report breaks."""
    queue, cut = new_queue(), CutFirst("POST", "/outcomes")
    proxy = Proxy(server.url, cut.choose)
    worker, attempts = Worker(Outlast(proxy.url, key=server.key)), []

    @worker.job(queue)
    def handle(job: Any) -> Any:
        attempts.append((job.payload, job.attempt))
        cut.bytes_left = job.payload
        return job.payload

    places = range(0, 420, 1 if IS_SOAK else 3)
    with running(worker):
        jobs = outlast.queue(queue).publish_many(places)
        results = [job.result(timeout=120) for job in jobs]
    proxy.close()

    assert results == list(places)
    assert attempts == [(place, 1) for place in places]
    assert outlast.queues.get(queue).counts["succeeded"] == len(places)


def test_a_section_cut_after_each_byte_is_stored(server: Server, outlast: Outlast, new_queue: NewQueue) -> None:
    queue, cut = new_queue(), CutFirst("PUT", "")
    proxy = Proxy(server.url, cut.choose)
    worker, made = Worker(Outlast(proxy.url, key=server.key)), []
    places = range(0, 400, 1 if IS_SOAK else 4)

    @worker.job(queue)
    def handle(job: Any) -> Any:
        def make(name: str) -> str:
            made.append(name)
            cut.bytes_left = int(name[1:])
            return name

        return job.each_section([f"s{place}" for place in places], make)

    with running(worker):
        result = outlast.queue(queue).publish(None).result(timeout=120)
    proxy.close()

    assert result == [f"s{place}" for place in places]
    assert made == result


def test_output_cut_after_each_byte_is_stored_once(server: Server, outlast: Outlast, new_queue: NewQueue) -> None:
    outlast.stats.health()
    if outlast.transport.server_version is None:  # type: ignore[attr-defined]
        pytest.skip("the server does not know `part`")
    queue, cut = new_queue(), CutFirst("POST", "/output")
    proxy = Proxy(server.url, cut.choose)
    worker = Worker(Outlast(proxy.url, key=server.key))
    places = range(0, 400, 1 if IS_SOAK else 8)

    @worker.job(queue)
    def handle(job: Any) -> None:
        for place in places:
            cut.bytes_left = place
            # Enough for a part of its own.
            job.output(f"[{place}]".ljust(4096))

    with running(worker):
        job = outlast.queue(queue).publish(None)
        assert job.result(timeout=120) is None
    proxy.close()
    texts = [event["text"].strip() for event in job.events() if event["type"] == "output"]

    assert texts == [f"[{place}]" for place in places]


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "async"])
def test_a_stream_cut_at_every_place_brings_each_event_once(
    server: Server, outlast: Outlast, new_queue: NewQueue, is_async: bool
) -> None:
    queue = new_queue()
    worker = Worker(outlast)

    @worker.job(queue)
    def handle(job: Any) -> str:
        job.each_section([f"s{n}" for n in range(20)], lambda name: name)
        return "done"

    with running(worker):
        job = outlast.queue(queue).publish(None)
        job.result(timeout=60)
    whole = [event for event in job.events() if event["type"] != "progress"]
    assert [event.get("seq") for event in whole] == [*range(1, len(whole)), None]

    places = iter(range(420, 5000, 67))
    proxy = Proxy(server.url, lambda recorded: Fault(cut_raw=next(places)) if recorded.path.endswith("/stream") else None)
    if is_async:

        async def collect() -> list[Any]:
            async with AsyncOutlast(proxy.url, key=server.key) as client:
                from outlast import AsyncJob

                return [event async for event in AsyncJob(client, {"id": job.id}).events(timeout=60)]

        seen = asyncio.run(collect())
    else:
        from outlast import Job

        seen = list(Job(Outlast(proxy.url, key=server.key), {"id": job.id}).events(timeout=60))
    proxy.close()

    assert [event for event in seen if event["type"] != "progress"] == whole
    assert len(proxy.requests) > 3


def test_a_live_stream_goes_on_after_cuts(server: Server, outlast: Outlast, new_queue: NewQueue) -> None:
    queue = new_queue()
    worker, go_on = Worker(outlast), threading.Semaphore(0)
    proxy = Proxy(server.url)

    @worker.job(queue)
    def handle(job: Any) -> None:
        for n in range(6):
            assert go_on.acquire(timeout=60)
            job.section(f"s{n}", lambda: 1)

    seen: list[Any] = []
    with running(worker):
        job = outlast.queue(queue).publish(None)
        from outlast import Job

        for event in Job(Outlast(proxy.url, key=server.key), {"id": job.id}).events(timeout=60):
            if event["type"] in ("state", "checkpoint"):
                proxy.cut_all()
                go_on.release()
            if event["type"] != "progress":
                seen.append(event)
    proxy.close()

    assert [event.get("seq") for event in seen] == [*range(1, len(seen)), None]
    assert seen[-1]["status"] == "succeeded"


def test_a_storm_of_503_loses_nothing(server: Server, outlast: Outlast, new_queue: NewQueue) -> None:
    queue = new_queue()
    seen: dict[bytes, int] = {}

    def storm(recorded: Recorded) -> Fault | None:
        # Two of three tries of each request are refused.
        mark = recorded.method.encode() + recorded.path.encode() + recorded.body
        seen[mark] = seen.get(mark, 0) + 1
        if recorded.path == "/livez" or seen[mark] % 3 == 0:
            return None
        body = {"code": "overloaded", "status": 503, "title": "Overloaded", "detail": "too many requests are in flight"}
        return Fault(answer={"status": 503, "headers": {"retry-after": "0"}, "body": body})

    proxy = Proxy(server.url, storm)
    client = Outlast(proxy.url, key=server.key)
    worker, done = Worker(client), []

    @worker.job(queue, concurrency=4)
    def handle(job: Any) -> Any:
        done.append(job.payload)
        return job.section("part", lambda: job.payload)

    with running(worker):
        jobs = [client.queue(queue).publish(n) for n in range(30)]
        assert [job.result(timeout=120) for job in jobs] == list(range(30))
    proxy.close()

    assert sorted(done) == list(range(30))


def test_a_killed_server_loses_no_outcome(own_server: Server) -> None:
    """The server dies while jobs run and while outcomes are on their way; every job is acked once."""
    client = Outlast(own_server.url, key=own_server.key)
    client.queues.create("work", visibility_timeout=4)
    worker, lock, attempts = Worker(client), threading.Lock(), dict[str, int]()

    @worker.job("work", concurrency=8)
    def handle(job: Any) -> Any:
        with lock:
            attempts[job.id] = attempts.get(job.id, 0) + 1
        time.sleep(0.02)
        return job.payload

    with running(worker):
        jobs = []
        for round_number in range(4):
            jobs += client.queue("work").publish_many(range(60))
            count = len(jobs)
            wait_until(lambda count=count: len(attempts) > count - 45)
            own_server.kill()
            time.sleep(0.2 * round_number)
            own_server.start()
        results = [job.result(timeout=120) for job in jobs]

    assert results == [*range(60)] * 4
    counts = client.queues.get("work").counts
    assert counts["succeeded"] == 240
    # A kill between the commit of a hand-out and its answer may cost an attempt of jobs that were never begun.
    assert sum(attempts.values()) == 240


def test_a_server_that_is_away_is_definite_before_a_byte_was_sent(own_server: Server) -> None:
    client = Outlast(own_server.url, key=own_server.key, retries=0)
    client.queues.create("away")
    client.close()
    own_server.kill()

    with pytest.raises(Unavailable, match="nothing was sent"):
        client.queue("away").publish(1)
    own_server.start()

    assert client.queue("away").publish(1).status == "queued"


def test_a_lost_answer_to_a_call_that_cannot_be_repeated_is_in_doubt(server: Server, outlast: Outlast) -> None:
    proxy = Proxy(server.url, lambda _: Fault(drop="answer"))
    client = Outlast(proxy.url, key=server.key)

    with pytest.raises(InDoubt):
        client.keys.create("once", ["read"])
    proxy.close()

    assert len(proxy.requests) == 1


def test_answers_that_are_not_json_do_not_break_the_client(server: Server) -> None:
    for status in (400, 404, 500, 502):
        page = Fault(answer={"status": status, "body": "<html>a proxy's page</html>"})
        proxy = Proxy(server.url, lambda _, page=page: page)
        with pytest.raises(OutlastError):
            Outlast(proxy.url, key=server.key, retries=0).queues.get("any")
        proxy.close()


def test_every_request_of_the_client_is_valid_json(server: Server, new_queue: NewQueue) -> None:
    """Big integers, umlauts and models arrive as they were given."""
    queue = new_queue()
    proxy = Proxy(server.url)
    client = Outlast(proxy.url, key=server.key)
    payload = {"big": 2**70, "text": "Gezeiten – ☂", "nested": [{"a": None}]}

    job = client.queue(queue).publish(payload)
    proxy.close()

    assert json.loads(proxy.requests[0].body)["payload"] == payload
    assert Outlast(server.url, key=server.key).jobs.get(job.id).payload == payload


def test_an_upload_is_repeated_from_its_beginning(server: Server, outlast: Outlast, new_queue: NewQueue) -> None:
    """Refused once and cut once: the bytes of the third try are whole."""
    queue, data = new_queue(), bytes(range(256)) * 2000
    away = {"code": "blobs_unavailable", "status": 503, "detail": "the object store is away"}
    faults = iter([Fault(answer={"status": 503, "headers": {"retry-after": "0"}, "body": away}), Fault(drop="answer")])
    proxy = Proxy(server.url, lambda one: next(faults, None) if one.method == "PUT" else None)
    worker = Worker(Outlast(proxy.url, key=server.key))
    worker.job(queue)(lambda job: data)

    with running(worker):
        job = outlast.queue(queue).publish(None)
        wait_until(lambda: job.refresh().status == "succeeded")
    proxy.close()

    assert job.result_meta["length"] == len(data)
    assert len([one for one in proxy.requests if one.method == "PUT"]) == 3


def test_refused_outcomes_stop_the_receives(server: Server, outlast: Outlast, new_queue: NewQueue, monkeypatch: Any) -> None:
    """While reports are refused, the worker holds a bounded number of outcomes, and reports all of them later."""
    from outlast.worker import group

    monkeypatch.setattr(group, "OUTCOMES_MAX", 20)
    queue, is_open = new_queue(), threading.Event()
    away = Fault(answer={"status": 503, "headers": {"retry-after": "0"}, "body": {"code": "unavailable", "status": 503}})
    proxy = Proxy(server.url, lambda one: away if one.path == "/v1/outcomes" and not is_open.is_set() else None)
    worker, done = Worker(Outlast(proxy.url, key=server.key)), []
    worker.job(queue, concurrency=4)(lambda job: done.append(job.id))
    jobs = outlast.queue(queue).publish_many(range(100))

    with running(worker):
        wait_until(lambda: len(done) >= 20)
        time.sleep(1)
        held = len(done)
        is_open.set()
        wait_until(lambda: outlast.queues.get(queue).counts["succeeded"] == len(jobs))
    proxy.close()

    assert held <= 24
    assert len(done) == 100
