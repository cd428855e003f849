"""A receiver: a thread that asks the server for as many jobs as there are free slots, and hands them on."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._version import __version__
from ..core.calls import post, segment
from ..core.problems import refusal, retry_after
from ..core.retry import backoff
from ..core.steps import Answer, NoAnswer, Request
from ..errors import Refused
from ..transport import HttpTransport
from .handout import Handout, server_time
from .pending_call import PendingCall, Waker

log = logging.getLogger("outlast")

BATCH_MAX = 100
WAIT_SECONDS = 20.0
# How long to wait before asking again for a queue that does not exist.
NO_QUEUE_SECONDS = 2.0
FATAL_STATUSES = frozenset({400, 401, 403, 409})


class Slots:
    """Counts the handlers that may still begin."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._condition = threading.Condition()
        self._is_closed = False

    def wait_free(self) -> int:
        """The number of free slots, at least one; 0 once closed."""
        with self._condition:
            self._condition.wait_for(lambda: self._is_closed or self._used < self._limit)
            return 0 if self._is_closed else self._limit - self._used

    def take(self) -> None:
        with self._condition:
            self._used += 1

    def give_back(self) -> None:
        with self._condition:
            self._used -= 1
            self._condition.notify_all()

    def close(self) -> None:
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def wait_idle(self, timeout: float) -> bool:
        with self._condition:
            return self._condition.wait_for(lambda: self._used == 0, timeout)


def describe_agent() -> dict[str, Any]:
    """How the server shows this process among its workers."""
    return {"host": socket.gethostname()[:128] or "unknown", "pid": os.getpid(), "sdk": f"python/{__version__}"}


@dataclass
class Ask:
    """The part of a receive that is the same each time."""

    # Queues with their weights.
    queues: Mapping[str, int]
    worker: str
    visibility_timeout: float | None = None
    accepts_schema: list[int] | None = None
    # How many jobs one slot takes: 1, or the size of a batch handler.
    jobs_per_slot: int = 1
    agent: dict[str, Any] = field(default_factory=describe_agent)

    def request(self, free: int, *, knows_agent: bool) -> Request:
        body: dict[str, Any] = {"batch": min(BATCH_MAX, free * self.jobs_per_slot), "wait": WAIT_SECONDS, "worker": self.worker}
        if self.visibility_timeout is not None:
            body["visibilityTimeout"] = self.visibility_timeout
        if self.accepts_schema is not None:
            body["acceptsSchema"] = self.accepts_schema
        if knows_agent:
            body["agent"] = self.agent
        if len(self.queues) == 1:
            path = f"/v1/queues/{segment(next(iter(self.queues)))}/receive"
        else:
            path = "/v1/receive"
            body["queues"] = [{"name": name, "weight": weight} for name, weight in self.queues.items()]
        request = post(path, body)
        request.wait = WAIT_SECONDS
        return request


class Receiver:
    def __init__(
        self,
        transport: HttpTransport,
        ask: Ask,
        slots: Slots,
        dispatch: Callable[[list[Handout]], None],
        on_fatal: Callable[[Refused], None],
    ) -> None:
        self._transport = transport
        self._ask = ask
        self._slots = slots
        self._dispatch = dispatch
        self._on_fatal = on_fatal
        self._pending = PendingCall(transport)
        self._waker = Waker()
        self._is_stopping = threading.Event()
        self._failures = 0
        self._has_received = False
        self._sends_agent = True
        # Given by the worker: whether too many outcomes are on their way.
        self.is_congested: Callable[[], bool] = lambda: False
        self.thread = threading.Thread(target=self._run, name="outlast-receiver", daemon=True)

    def stop(self) -> None:
        """Ends the wait at once; jobs that the server was just handing out are still passed on."""
        self._is_stopping.set()
        self._slots.close()
        self._waker.wake()

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            free = self._slots.wait_free()
            if free == 0:
                break
            if self.is_congested():
                self._pause(0.05)
                continue
            try:
                handouts = self._receive(free)
            except Refused as refused:
                self._on_fatal(refused)
                return
            except Exception:
                log.exception("receive failed; trying again")
                self._pause(1.0)
                continue
            if handouts:
                self._dispatch(handouts)
        self._pending.abort()

    def _receive(self, free: int) -> list[Handout]:
        knows_agent = self._sends_agent and self._transport.server_version is not None
        request = self._ask.request(free, knows_agent=knows_agent)
        try:
            answer = self._pending.call(request, self._waker, lambda: not self._is_stopping.is_set())
        except NoAnswer as failure:
            self._failures += 1
            log.warning("receive failed; trying again: %s", failure)
            self._pause(backoff(self._failures))
            return []
        if answer is None:
            return []
        if answer.status != 200:
            self._refused(answer)
            return []
        self._failures, self._has_received = 0, True
        now, queue = server_time(answer.headers), next(iter(self._ask.queues))
        return [Handout.parse(job, queue, now) for job in answer.json()["jobs"]]

    def _refused(self, answer: Answer) -> None:
        """Wrong settings end the worker at its first receive; later they may be a key that is being rotated."""
        refused = refusal(answer)
        if self._sends_agent and any(error.get("field") == "agent" for error in refused.errors):
            # Another node of a cluster that is being upgraded.
            self._sends_agent = False
            return
        if answer.status in FATAL_STATUSES and not self._has_received:
            raise refused
        self._failures += 1
        pause = NO_QUEUE_SECONDS if answer.status == 404 else max(retry_after(answer.headers) or 0.0, backoff(self._failures))
        log.warning("receive was refused; trying again in %.1f s: %s", min(pause, 30.0), refused)
        self._pause(min(pause, 30.0))

    def _pause(self, seconds: float) -> None:
        self._is_stopping.wait(seconds)
