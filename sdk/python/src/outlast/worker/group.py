"""Groups of handlers that share slots, and the parts of a worker that all groups share: keeper and reporter."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import Refused
from ..sync import Outlast
from ..tracing import handling
from ..transport import HttpTransport
from .async_job import AsyncRunningJob
from .execute import INLINE_BYTES_MAX, Handler, conclude, execute, execute_batch, prepare
from .handout import Handout
from .held_job import HeldJob
from .job_api import HttpJobApi
from .keeper import Keeper
from .outcome import Outcome, after_raise
from .processes import Address, HandlerProcess
from .receiver import Ask, Receiver, Slots
from .reporter import Reporter

log = logging.getLogger("outlast")

Ended = tuple["Outcome | None", "BaseException | None"]
# Threads that make the calls of handlers with `async def`.
ASYNC_CALL_THREADS = 32
LOOP_TICK_SECONDS = 1.0
# With so many outcomes on their way no more jobs are received: it bounds their memory while reports are refused.
OUTCOMES_MAX = 1000


@dataclass(frozen=True)
class Route:
    """A handler, its queues with their weights, and how it runs."""

    handler: Handler
    queues: Mapping[str, int]
    batch: int
    processes: int | None


@dataclass(frozen=True)
class Group:
    """Routes that share slots and one receiver."""

    routes: list[Route]
    concurrency: int
    visibility_timeout: float | None
    accepts_schema: list[int] | None


class Groups:
    """The running parts of a worker."""

    def __init__(
        self, outlast: Outlast, transport: HttpTransport, worker: str, hooks: tuple[Any, Any, Any], max_blocked: float
    ) -> None:
        self._outlast = outlast
        self._transport = transport
        self._worker = worker
        self._on_start, self._on_end, self._on_error = hooks
        self._receivers: list[Receiver] = []
        self._runners: list[ThreadRunner] = []
        self._slots: list[Slots] = []
        self.keeper = Keeper(transport)
        self.reporter = Reporter(transport, self._reported)
        self._loop: LoopRunner | None = None
        self._max_blocked = max_blocked
        self._is_stopping = False
        self.keeper.is_loop_alive = self._is_loop_alive

    def add(self, group: Group, on_fatal: Callable[[Refused], None]) -> None:
        """Starts a group."""
        slots = Slots(group.concurrency)
        queues: dict[str, int] = {}
        runners: dict[str, ThreadRunner | LoopRoute] = {}
        for route in group.routes:
            runner = self._runner(route, slots, group.concurrency)
            for name, weight in route.queues.items():
                if name in queues:
                    raise ValueError(f"two handlers for the queue {name} share the same slots")
                queues[name] = weight
                runners[name] = runner

        def dispatch(handouts: list[Handout]) -> None:
            if self._is_stopping:
                for handout in handouts:
                    held = self.hold(handout)
                    held.conclude()
                    self.reporter.report(held, Outcome("release"))
                return
            for name in dict.fromkeys(handout.queue for handout in handouts):
                runners[name].start([self.hold(handout) for handout in handouts if handout.queue == name])

        ask = Ask(queues, self._worker, group.visibility_timeout, group.accepts_schema, group.routes[0].batch)
        receiver = Receiver(self._transport, ask, slots, dispatch, on_fatal)
        receiver.is_congested = lambda: self.reporter.outstanding >= OUTCOMES_MAX
        self._slots.append(slots)
        self._receivers.append(receiver)
        receiver.thread.start()

    def _runner(self, route: Route, slots: Slots, concurrency: int) -> ThreadRunner | LoopRoute:
        if route.handler.is_async:
            self._loop = self._loop or LoopRunner(self)
            return LoopRoute(self, self._loop, route.handler, slots)
        runner = ThreadRunner(self, route, slots, concurrency)
        self._runners.append(runner)
        return runner

    def hold(self, handout: Handout) -> HeldJob:
        held = HeldJob(handout)
        self.keeper.add(held)
        return held

    def api(self, held: HeldJob) -> HttpJobApi:
        transport = self._outlast.transport
        if isinstance(transport, HttpTransport):
            transport.server_version = self._transport.server_version
        return HttpJobApi(transport, held, INLINE_BYTES_MAX)

    def address(self) -> Address:
        return Address(self._outlast.url, self._outlast.key, self._outlast.timeout)

    def began(self, held: HeldJob) -> None:
        if self._on_start is not None:
            self._call(self._on_start, held)

    def ended(self, held: HeldJob, ended: Ended) -> None:
        """The handler of a job has ended: its outcome is reported, unless the job was released or lost meanwhile."""
        outcome, error = ended
        if error is not None and held.stop_reason is None:
            log.info("job %s: the handler raised %s: %s", held.id, type(error).__name__, error)
            if self._on_error is not None:
                self._call(self._on_error, held, error)
        if not held.conclude():
            return
        if outcome is None:
            log.warning("job %s: nothing is reported (%s)", held.id, held.stop_reason or "lost")
            self.keeper.remove(held)
            held.reported.set()
            if self._on_end is not None:
                self._call(self._on_end, held, None)
            return
        self.reporter.report(held, outcome)

    def stop_receiving(self) -> None:
        """Ends the receives. Jobs whose answer was already on its way are released."""
        self._is_stopping = True
        for receiver in self._receivers:
            receiver.stop()
        for receiver in self._receivers:
            receiver.thread.join(5)

    def held_jobs(self) -> list[HeldJob]:
        return self.keeper.held_jobs()

    def wait_idle(self, timeout: float) -> bool:
        """Whether every handler has ended."""
        until = time.monotonic() + timeout
        return all(slots.wait_idle(max(0.0, until - time.monotonic())) for slots in self._slots)

    def release_unfinished(self) -> None:
        """Returns the jobs of handlers that have not ended, without a charge."""
        for held in self.held_jobs():
            if held.stop_reason not in ("lost", "hard limit") and held.abandon():
                self.reporter.report(held, Outcome("cancelled" if "cancel" in held.directives else "release"))

    def flush(self) -> None:
        """Waits for the answers to all outcomes, as long as a lease may last."""
        self.reporter.flush(60.0)

    def close(self) -> None:
        for receiver in self._receivers:
            receiver.stop()
        for runner in self._runners:
            runner.close()
        if self._loop is not None:
            self._loop.close()
        self.reporter.stop()
        self.keeper.stop()
        self._transport.close()

    def _reported(self, held: HeldJob, outcome: Outcome, _result: dict[str, Any]) -> None:
        self.keeper.remove(held)
        if self._on_end is not None:
            self._call(self._on_end, held, outcome)

    def _is_loop_alive(self, held: HeldJob) -> bool:
        loop = self._loop
        return loop is None or held not in loop.held or time.monotonic() - loop.ticked_at < self._max_blocked

    def _call(self, hook: Callable[..., None], *arguments: Any) -> None:
        try:
            hook(*arguments)
        except Exception:
            log.exception("a hook of the worker failed")


class ThreadRunner:
    """Runs a blocking handler in threads, each with a child process of its own where the route asks for it."""

    def __init__(self, groups: Groups, route: Route, slots: Slots, threads: int) -> None:
        self._groups = groups
        self._route = route
        self._slots = slots
        self._threads_max = threads
        self._threads = 0
        self._waiting: queue.SimpleQueue[list[HeldJob] | None] = queue.SimpleQueue()
        self._processes: list[HandlerProcess] = []

    def start(self, jobs: list[HeldJob]) -> None:
        size = self._route.batch
        for first in range(0, len(jobs), size):
            self._slots.take()
            if self._threads < self._threads_max:
                self._threads += 1
                threading.Thread(target=self._run, name="outlast-handler", daemon=True).start()
            self._waiting.put(jobs[first : first + size])

    def close(self) -> None:
        for _ in range(self._threads):
            self._waiting.put(None)
        for process in self._processes:
            process.close()

    def _run(self) -> None:
        process: HandlerProcess | None = None
        if self._route.processes is not None:
            process = HandlerProcess(self._route.handler, self._groups.address())
            self._processes.append(process)
        while True:
            jobs = self._waiting.get()
            if jobs is None:
                return
            try:
                self._run_jobs(jobs, process)
            except Exception:
                log.exception("running a handler failed; its jobs come back when their leases end")
            finally:
                self._slots.give_back()

    def _run_jobs(self, jobs: list[HeldJob], process: HandlerProcess | None) -> None:
        groups, handler = self._groups, self._route.handler
        for held in jobs:
            groups.began(held)
        if handler.is_batch:
            pairs = [(held, groups.api(held)) for held in jobs]
            for held, ended in zip(jobs, execute_batch(handler, pairs, groups.keeper.hurry)):
                groups.ended(held, ended)
            return
        held = jobs[0]
        if process is not None:
            groups.ended(held, process.execute(held, groups.keeper.hurry))
        else:
            groups.ended(held, execute(handler, held, groups.api(held), groups.keeper.hurry))


class LoopHost(Protocol):
    """The owner of a loop: a worker or a webhook."""

    keeper: Keeper

    def api(self, held: HeldJob) -> HttpJobApi:
        """The calls of a job."""


class LoopRunner:
    """Runs `async def` handlers in one loop, in a thread of its own."""

    def __init__(self, host: LoopHost) -> None:
        self._host = host
        self.loop = asyncio.new_event_loop()
        self.pool = ThreadPoolExecutor(ASYNC_CALL_THREADS, thread_name_prefix="outlast-call")
        self.held: set[HeldJob] = set()
        self.ticked_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="outlast-loop", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(2)
        self.pool.shutdown(wait=False)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._tick)
        self.loop.run_forever()

    def _tick(self) -> None:
        """The keeper lets go of the jobs of a loop that has not ticked for `max_blocked`."""
        self.ticked_at = time.monotonic()
        self.loop.call_later(LOOP_TICK_SECONDS, self._tick)

    async def execute(self, handler: Handler, held: HeldJob) -> Ended:
        try:
            inner = prepare(handler, held, self._host.api(held), self._host.keeper.hurry)
            job = AsyncRunningJob(inner, self.pool)
            task = asyncio.ensure_future(self._call(handler, held, job))
            held.on_stop(lambda _: self._cancel(task))
            value = await task
            return await self.loop.run_in_executor(self.pool, conclude, held, inner, value), None
        except BaseException as error:
            return after_raise(held, error, handler.defer_on), error

    def _cancel(self, task: asyncio.Future[Any]) -> None:
        self.loop.call_soon_threadsafe(task.cancel)

    async def _call(self, handler: Handler, held: HeldJob, job: AsyncRunningJob[Any]) -> Any:
        with handling(f"job {held.handout.queue}", held.handout.traceparent):
            return await handler.function(job)


class LoopRoute:
    """One handler in the loop."""

    def __init__(self, groups: Groups, runner: LoopRunner, handler: Handler, slots: Slots) -> None:
        self._groups = groups
        self._runner = runner
        self._handler = handler
        self._slots = slots

    def start(self, jobs: list[HeldJob]) -> None:
        for held in jobs:
            self._slots.take()
            self._runner.held.add(held)
            asyncio.run_coroutine_threadsafe(self._run(held), self._runner.loop)

    async def _run(self, held: HeldJob) -> None:
        try:
            self._groups.began(held)
            self._groups.ended(held, await self._runner.execute(self._handler, held))
        finally:
            self._runner.held.discard(held)
            self._slots.give_back()
