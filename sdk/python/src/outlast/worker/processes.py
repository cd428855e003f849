"""Handlers in child processes, for code that holds Python's interpreter lock. The keeper stays in the parent.

Children are spawned, so a handler must be a function that can be imported by name. A child makes the calls of its job
alone; progress and the outcome go to the parent over a pipe.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from ..core.calls import get
from ..core.steps import NoAnswer
from ..transport import HttpTransport
from .execute import INLINE_BYTES_MAX, Handler, execute
from .handout import Handout
from .held_job import HeldJob
from .job_api import HttpJobApi
from .outcome import Outcome

log = logging.getLogger("outlast")

PROCESS_NAME = "outlast-handler"
# How long a child may take to stop after a lost lease or at the end of the worker.
STOP_SECONDS = 5.0
_spawn = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Address:
    """How a child reaches the server."""

    url: str
    key: str | None
    timeout: float


def is_child() -> bool:
    """Whether this process runs handlers for a worker. A child imports the main module, which may call `worker.run()`."""
    return multiprocessing.current_process().name.startswith(PROCESS_NAME)


class HandlerProcess:
    """One child, used by one thread of the worker. It is started by the first job and again after each death."""

    def __init__(self, handler: Handler, address: Address) -> None:
        self._handler = handler
        self._address = address
        self._process: Any = None
        self._pipe: Connection | None = None
        self._send_lock = threading.Lock()
        self._passed_on: set[tuple[str, Any]] = set()

    def execute(self, held: HeldJob, on_progress: Callable[[], None]) -> tuple[Outcome | None, BaseException | None]:
        """Runs the job in the child. A child that dies fails the attempt; one that does not stop in time is killed."""
        pipe = self._start()
        held.on_stop(lambda reason: self._tell(pipe, ("stop", reason)))
        kill_at: float | None = None
        try:
            self._passed_on = set()
            self._tell(pipe, ("run", held.handout))
            while True:
                if pipe.poll(0.1):
                    kind, value = pipe.recv()
                    if kind == "progress":
                        held.set_progress(value)
                        on_progress()
                    elif kind == "usage":
                        held.usage = value
                    elif kind == "outcome":
                        ended: tuple[Outcome | None, BaseException | None] = value
                        return ended
                kill_at = self._watch(held, pipe, kill_at)
        except (EOFError, OSError):
            return self._died(held)

    def close(self) -> None:
        """Ends the child, which is idle; one that does not end is killed."""
        if self._process is None:
            return
        if self._pipe is not None:
            self._tell(self._pipe, ("exit", None))
        self._process.join(0.5)
        self.kill()

    def kill(self) -> None:
        if self._process is not None and self._process.is_alive():
            self._process.kill()
            self._process.join(STOP_SECONDS)

    def _start(self) -> Connection:
        if self._process is not None and self._process.is_alive() and self._pipe is not None:
            return self._pipe
        ours, theirs = _spawn.Pipe()
        self._process = _spawn.Process(
            target=child_main, args=(theirs, self._handler, self._address), name=PROCESS_NAME, daemon=True
        )
        self._process.start()
        theirs.close()
        self._pipe = ours
        return ours

    def _tell(self, pipe: Connection, message: tuple[str, Any]) -> None:
        try:
            with self._send_lock:
                pipe.send(message)
        except (OSError, ValueError):
            # The child is gone; `execute` notices it.
            return

    def _tell_once(self, pipe: Connection, message: tuple[str, Any]) -> None:
        """A child that holds the interpreter lock reads nothing: repeated messages would fill the pipe and block this thread."""
        if message not in self._passed_on:
            self._passed_on.add(message)
            self._tell(pipe, message)

    def _watch(self, held: HeldJob, pipe: Connection, kill_at: float | None) -> float | None:
        """Passes signals on, and kills a child that does not stop."""
        if held.soft_limit.is_set():
            self._tell_once(pipe, ("soft limit", None))
        if held.shutting_down.is_set():
            self._tell_once(pipe, ("shutting down", None))
        if held.directives:
            self._tell_once(pipe, ("directives", held.directives))
        if held.stop_reason is None:
            return None
        if kill_at is None:
            # The lease is gone at once at a hard limit; a cancel has its drain time.
            grace = {"hard limit": 0.0, "cancel": held.handout.drain_timeout * 0.8}.get(held.stop_reason, STOP_SECONDS)
            kill_at = time.monotonic() + grace
        if time.monotonic() >= kill_at or held.stop_reason == "hard limit":
            log.warning("job %s: its process did not stop (%s) and is killed", held.id, held.stop_reason)
            self.kill()
            raise EOFError
        return kill_at

    def _died(self, held: HeldJob) -> tuple[Outcome | None, BaseException | None]:
        code = self._process.exitcode
        self.kill()
        if held.stop_reason in ("lost", "hard limit"):
            return None, None
        if held.stop_reason == "cancel":
            return Outcome("cancelled"), None
        if held.stop_reason == "shutdown":
            return Outcome("release"), None
        error = RuntimeError(f"the process of the handler ended with exit code {code if code is not None else 'unknown'}")
        return Outcome("nack", {"reason": str(error)}), error


def child_main(pipe: Connection, handler: Handler, address: Address) -> None:
    """The main function of a child: runs one job after another."""
    # Signals of the terminal reach the whole group; the parent decides when a child stops.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    transport = HttpTransport(address.url, address.key, address.timeout)
    _learn_version(transport)
    current: list[HeldJob | None] = [None]
    jobs: list[Handout] = []
    has_job = threading.Condition()

    def listen() -> None:
        try:
            while True:
                kind, value = pipe.recv()
                with has_job:
                    if kind == "run":
                        jobs.append(value)
                        has_job.notify()
                held = current[0]
                if kind == "exit":
                    break
                if held is not None:
                    _obey(held, kind, value)
        except (EOFError, OSError):
            pass
        # The parent is gone, or asks to end: nothing that happens here can be reported any more.
        os._exit(0)

    threading.Thread(target=listen, name="outlast-pipe", daemon=True).start()
    while True:
        with has_job:
            has_job.wait_for(lambda: bool(jobs))
            held = current[0] = HeldJob(jobs.pop(0))
        # The parent keeps the lease and stops the work when it is lost.
        held.renew(365 * 86400.0, time.monotonic())
        _run_one(pipe, handler, held, transport)
        current[0] = None


def _learn_version(transport: HttpTransport) -> None:
    try:
        transport.send(get("/livez"))
    except NoAnswer as failure:
        # Every later answer has the version too.
        log.warning("the server does not answer: %s", failure)


def _run_one(pipe: Connection, handler: Handler, held: HeldJob, transport: HttpTransport) -> None:
    lock = threading.Lock()

    def send_progress() -> None:
        progress = held.take_progress()
        if progress is not None:
            with lock:
                pipe.send(("progress", progress))

    outcome, error = execute(handler, held, HttpJobApi(transport, held, INLINE_BYTES_MAX), send_progress)
    described = None if error is None else RuntimeError(f"{type(error).__name__}: {error}")
    pipe.send(("usage", held.usage))
    pipe.send(("outcome", (outcome, described)))


def _obey(held: HeldJob, kind: str, value: Any) -> None:
    if kind == "stop":
        held.stop(value)
    elif kind == "soft limit":
        held.soft_limit.set()
    elif kind == "shutting down":
        held.shutting_down.set()
    elif kind == "directives":
        held.take_directives(value)
