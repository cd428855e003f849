"""The worker: receives jobs, runs handlers, keeps leases, reports outcomes, and shuts down without losing work."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..core.calls import get
from ..core.retry import backoff
from ..core.steps import NoAnswer
from ..durations import Duration, seconds
from ..errors import Refused
from ..sync import Outlast
from ..transport import HttpTransport
from .execute import Handler
from .group import Group, Groups, Route
from .held_job import HeldJob
from .outcome import DeferOn, Outcome
from .processes import is_child

log = logging.getLogger("outlast")

F = TypeVar("F", bound=Callable[..., Any])
# After the grace time: how long handlers have between the signal to stop and the release of their jobs.
ABORT_SECONDS = 3.0
# How late a signal that another thread got is noticed.
SIGNAL_SECONDS = 0.5


class Worker:
    """Runs handlers for the jobs of queues.

    `grace` is how long handlers may go on after SIGTERM. `worker` is the name that the server shows. `concurrency` makes all
    handlers share so many slots, filled by the weights of their queues; otherwise each handler has its own.
    """

    def __init__(
        self,
        outlast: Outlast | None = None,
        *,
        grace: Duration = 25,
        worker: str | None = None,
        concurrency: int | None = None,
        max_blocked: Duration = 600,
        on_start: Callable[[HeldJob], None] | None = None,
        on_end: Callable[[HeldJob, Outcome | None], None] | None = None,
        on_error: Callable[[HeldJob, BaseException], None] | None = None,
    ) -> None:
        self._outlast = outlast
        self.grace = seconds(grace)
        self.name = (worker or f"{socket.gethostname()}:{os.getpid()}")[:128]
        self._concurrency = concurrency
        self._max_blocked = seconds(max_blocked)
        self._hooks = (on_start, on_end, on_error)
        self._routes: list[tuple[Route, int, float | None, list[int] | None]] = []
        self._stop = threading.Event()
        self._release_now = threading.Event()
        self._fatal: Refused | None = None
        self._signals_seen = 0

    def job(
        self,
        queue: str | Mapping[str, int],
        *,
        concurrency: int = 1,
        weight: int = 1,
        batch: int | None = None,
        processes: int | None = None,
        payload: Any = None,
        accepts_schema: list[int] | None = None,
        visibility_timeout: Duration | None = None,
        defer_on: DeferOn | None = None,
    ) -> Callable[[F], F]:
        """Registers a handler for a queue, or for several with their weights.

        `concurrency` is how many run at once, each in a thread (`async def`: in one loop). `processes` runs so many in child
        processes instead. `batch` gives the handler a list of up to so many jobs.
        """
        queues = {queue: weight} if isinstance(queue, str) else dict(queue)
        _check(queues, concurrency, batch, processes)

        def register(function: F) -> F:
            handler = Handler.of(function, payload, defer_on, is_batch=batch is not None)
            if handler.is_async and (batch is not None or processes is not None):
                raise ValueError("batch and processes are for handlers with def, not with async def")
            route = Route(handler, queues, batch or 1, processes)
            lease = None if visibility_timeout is None else seconds(visibility_timeout)
            self._routes.append((route, processes or concurrency, lease, accepts_schema))
            return function

        return register

    def run(self) -> None:
        """Works until `stop()`, SIGTERM or SIGINT, then shuts down. Raises where the server refuses the first receive."""
        if is_child():
            return
        if not self._routes:
            raise ValueError("the worker has no handler; register one with @worker.job(queue)")
        outlast = self._outlast or Outlast()
        previous = self._take_signals()
        groups: Groups | None = None
        try:
            transport = self._connect(outlast)
            if transport is None:
                return
            groups = Groups(outlast, transport, self.name, self._hooks, self._max_blocked)
            self._start(groups)
            # Without a timeout the wait may miss a signal: the kernel may give it to another thread, which wakes no other.
            while not self._stop.wait(SIGNAL_SECONDS):
                pass
            self._shut_down(groups)
        finally:
            if groups is not None:
                groups.close()
            for number, handler in previous.items():
                signal.signal(number, handler)
            if self._outlast is None:
                outlast.close()
        if self._fatal is not None:
            raise self._fatal

    def stop(self) -> None:
        """Begins the shutdown; `run()` returns when it is done."""
        self._stop.set()

    def _connect(self, outlast: Outlast) -> HttpTransport | None:
        """Learns the version of the server, waiting for it to come up. None where the worker was stopped meanwhile."""
        transport = HttpTransport(outlast.url, outlast.key, min(outlast.timeout, 10.0))
        tries = 0
        while not self._stop.is_set():
            tries += 1
            try:
                transport.send(get("/livez"))
                return transport
            except NoAnswer as failure:
                log.warning("the server does not answer; trying again: %s", failure)
                self._stop.wait(backoff(tries))
        return None

    def _start(self, groups: Groups) -> None:
        if self._concurrency is not None:
            routes = [route for route, _, _, _ in self._routes]
            leases = [lease for _, _, lease, _ in self._routes if lease is not None]
            schemas = [accepted for _, _, _, accepted in self._routes if accepted is not None]
            if len({tuple(accepted) for accepted in schemas}) > 1 or any(route.batch > 1 for route in routes):
                raise ValueError("handlers that share slots need the same accepts_schema and no batch")
            groups.add(Group(routes, self._concurrency, min(leases, default=None), schemas[0] if schemas else None), self._fail)
            return
        for route, concurrency, lease, accepts_schema in self._routes:
            groups.add(Group([route], concurrency, lease, accepts_schema), self._fail)

    def _fail(self, refused: Refused) -> None:
        """The first receive was refused: the settings are wrong, and waiting does not help."""
        log.error("receive was refused; the worker stops: %s", refused)
        self._fatal = refused
        self._stop.set()

    def _shut_down(self, groups: Groups) -> None:
        """No new jobs; handlers may end within the grace time; then they are asked to stop; then their jobs are released."""
        groups.stop_receiving()
        for held in groups.held_jobs():
            held.shutting_down.set()
        self._wait_idle(groups, self.grace)
        unfinished = [held for held in groups.held_jobs() if not held.is_concluded]
        if unfinished and not self._release_now.is_set():
            log.warning("shutdown: %d jobs have not ended within the grace time and are asked to stop", len(unfinished))
        for held in unfinished:
            held.stop("shutdown")
        self._wait_idle(groups, ABORT_SECONDS)
        groups.release_unfinished()
        groups.flush()

    def _wait_idle(self, groups: Groups, limit: float) -> None:
        until = time.monotonic() + limit
        while time.monotonic() < until and not self._release_now.is_set():
            if groups.wait_idle(0.05):
                return

    def _take_signals(self) -> dict[int, Any]:
        """The first signal begins the shutdown, the second releases the jobs now. Only in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return {}

        def take(number: int, _frame: object) -> None:
            self._signals_seen += 1
            if self._signals_seen > 1:
                self._release_now.set()
            self._stop.set()

        return {number: signal.signal(number, take) for number in (signal.SIGTERM, signal.SIGINT)}


def _check(queues: Mapping[str, int], concurrency: int, batch: int | None, processes: int | None) -> None:
    if not 1 <= len(queues) <= 100:
        raise ValueError(f"a handler takes 1 to 100 queues, not {len(queues)}")
    for name, value, limit in (("concurrency", concurrency, 10_000), ("batch", batch, 100), ("processes", processes, 1000)):
        if value is not None and not 1 <= value <= limit:
            raise ValueError(f"{name} must be from 1 to {limit}, not {value}")
    for queue, weight in queues.items():
        if not 1 <= weight <= 1000:
            raise ValueError(f"the weight of {queue} must be from 1 to 1000, not {weight}")
