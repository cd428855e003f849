"""Server-sent events: the parser, and the plan that follows a job's stream over broken connections."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import WaitTimeout
from ..schema import loads
from .calls import fetch, get, segment
from .retry import Tries, backoff, exchange
from .steps import Close, Emit, NoAnswer, Plan, Read, Sleep

# The server sends a comment after 15 s of silence; a connection without any bytes for this long is dead.
SILENCE_MAX = 45.0


@dataclass
class Frame:
    id: str | None
    event: str
    data: str


class Parser:
    """Cuts bytes into frames. Bytes may be split anywhere."""

    def __init__(self) -> None:
        self._rest = b""
        self.retry_seconds: float | None = None

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        self._rest += chunk
        while b"\n\n" in self._rest:
            block, self._rest = self._rest.split(b"\n\n", 1)
            frame = self._frame(block.decode())
            if frame is not None:
                yield frame

    def _frame(self, block: str) -> Frame | None:
        identifier, event, data = None, "message", []
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "id":
                identifier = value
            elif name == "event":
                event = value
            elif name == "data":
                data.append(value)
            elif name == "retry" and value.isdecimal():
                self.retry_seconds = int(value) / 1000
        return Frame(identifier, event, "\n".join(data)) if data else None


def follow(job_id: str, after: int, timeout: float | None) -> Plan[None]:
    """Emits every event of a job once and in order, progress in between, and `end` last."""
    deadline = None if timeout is None else time.monotonic() + timeout
    failures = 0
    while True:
        if not _is_open(deadline):
            raise WaitTimeout(f"job {job_id} has not ended within {timeout} s; it goes on")
        request = get(f"/v1/jobs/{segment(job_id)}/stream")
        if after:
            request.headers["last-event-id"] = str(after)
        answer = yield from exchange(request, Tries(go_on=lambda: _is_open(deadline)), opened=True)
        if answer.status == 204:
            job = yield from fetch(get(f"/v1/jobs/{segment(job_id)}"), 3)
            yield Emit({"type": "end", "status": job["status"], "replays": job.get("replays", 0)})
            return
        parser, seen = Parser(), after
        try:
            while True:
                chunk = yield Read(answer.stream, _limit(deadline))
                if not chunk:
                    break
                for event in _events(parser, chunk):
                    sequence = event.get("seq") if event["type"] != "end" else None
                    if sequence is not None:
                        if sequence <= after:
                            continue
                        after = sequence
                    yield Emit(event)
                    if event["type"] == "end":
                        return
        except NoAnswer:
            pass
        # A plan that returns, raises or is given up leaves its stream to the driver, which closes it.
        yield Close(answer.stream)
        failures = 0 if after > seen else failures + 1
        # The first reconnect after news is quick; the server's own `retry` counts where it brings nothing.
        yield Sleep(backoff(0) if failures == 0 else max(backoff(failures), min(parser.retry_seconds or 0.0, 5.0)))


def _events(parser: Parser, chunk: bytes) -> Iterator[dict[str, Any]]:
    for frame in parser.feed(chunk):
        event = loads(frame.data)
        event.setdefault("type", frame.event)
        yield event


def follow_queue(queue: str) -> Plan[None]:
    """Emits the changes of a queue. They cannot be resumed: each connection starts with the whole `queue`."""
    failures = 0
    while True:
        answer = yield from exchange(get(f"/v1/queues/{segment(queue)}/stream"), Tries(go_on=lambda: True), opened=True)
        parser = Parser()
        try:
            while True:
                chunk = yield Read(answer.stream, SILENCE_MAX)
                if not chunk:
                    break
                for frame in parser.feed(chunk):
                    failures = 0
                    yield Emit({"type": frame.event, "data": loads(frame.data)})
        except NoAnswer:
            pass
        # A plan that returns, raises or is given up leaves its stream to the driver, which closes it.
        yield Close(answer.stream)
        failures += 1
        yield Sleep(backoff(failures))


def _is_open(deadline: float | None) -> bool:
    return deadline is None or time.monotonic() < deadline


def _limit(deadline: float | None) -> float:
    return SILENCE_MAX if deadline is None else max(0.01, min(SILENCE_MAX, deadline - time.monotonic()))
