"""The `job` that a handler gets."""

from __future__ import annotations

import io
import mimetypes
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from ..record import camel
from ..schema import dumps, loads
from .checkpoint import Checkpoint
from .held_job import HeldJob
from .job_api import JobApi, Upload, file_length
from .output import Output, OutputFlusher

P = TypeVar("P")

_flusher = OutputFlusher()


class RunningJob(Generic[P]):
    """One attempt at a job. Every call on it raises `Cancelled` or `LeaseLost` where the work must stop."""

    def __init__(self, held: HeldJob, api: JobApi, payload: P, on_progress: Callable[[], None] = lambda: None) -> None:
        handout = held.handout
        self._held = held
        self._api = api
        self._on_progress = on_progress
        self._output: Output | None = None
        self._done_sections = set(handout.sections)
        self._sections_lock = threading.Lock()
        self.id = handout.id
        self.queue = handout.queue
        self.payload = payload
        self.attempt = handout.attempt
        self.max_attempts = handout.max_attempts
        self.replays = handout.replays
        self.key = handout.key
        self.tags = handout.tags
        self.deadline = handout.deadline
        self.soft_limit_at: datetime | None = None
        if handout.soft_time_limit is not None:
            self.soft_limit_at = datetime.now(timezone.utc) + timedelta(seconds=handout.soft_time_limit)
        self.checkpoint = Checkpoint(held, api)

    @property
    def cancelled(self) -> threading.Event:
        """Set when the work must stop; `stop_reason` says why."""
        return self._held.cancelled

    @property
    def stop_reason(self) -> str | None:
        """`cancel`, `lost`, `shutdown` or `hard limit`; None while the work goes on."""
        return self._held.stop_reason

    @property
    def soft_limit(self) -> threading.Event:
        """Set when `softTimeLimit` has passed."""
        return self._held.soft_limit

    @property
    def shutting_down(self) -> bool:
        """Whether the worker is shutting down; the job has until the grace time ends."""
        return self._held.shutting_down.is_set()

    @property
    def directives(self) -> frozenset[str]:
        """The words of the last heartbeat: `cancel`, `checkpoint_now`, `hand_over`, `slow_down`."""
        return self._held.directives

    def check(self) -> None:
        """Raises where the work must stop; for loops that call nothing else."""
        self._held.check()

    def progress(self, pct: float | None = None, stage: str | None = None, **fields: Any) -> None:
        """Reports progress; returns at once. `progress(40, "layout")`, or `items_done=`, `items_total=`, `message=` and so on."""
        self._held.check()
        report = {camel(name): value for name, value in fields.items() if value is not None}
        if pct is not None:
            report["pct"] = pct
        if stage is not None:
            report["stage"] = stage
        self._held.set_progress(report)
        self._on_progress()

    def usage(self, **amounts: float) -> None:
        """Adds to what the attempt has used, by unit; it is reported with the outcome."""
        for unit, amount in amounts.items():
            self._held.usage[unit] = self._held.usage.get(unit, 0) + amount

    def output(self, text: str) -> None:
        """Appends text to the log, for viewers. Words are gathered; order is kept."""
        self._held.check()
        if self._output is None:
            self._output = Output(self._held, self._api)
            _flusher.add(self._output)
        self._output.write(text)

    def section(self, name: str, make: Callable[[], Any]) -> Any:
        """The stored value of the section, or `make()`, stored. A stored one is never made again."""
        self._held.check()
        if name in self._done_sections:
            return self._api.get_section(name)
        return self._make_section(name, make)

    def each_section(self, names: Iterable[str], make: Callable[[str], Any], *, concurrency: int = 1) -> list[Any]:
        """The values of all sections in order: stored ones are read, the others are made with `make(name)` and stored."""
        ordered = list(names)
        if len(set(ordered)) != len(ordered):
            raise ValueError("section names must differ")
        self._held.check()
        stored = self._api.get_sections() if self._done_sections else {}
        values = {name: stored[name] for name in ordered if name in stored}
        missing = [name for name in ordered if name not in values]
        self.progress(items_done=len(values), items_total=len(ordered))

        def finish(name: str, value: Any) -> None:
            values[name] = value
            self.progress(items_done=len(values), items_total=len(ordered))

        if concurrency == 1:
            for name in missing:
                self._stop_between_sections()
                finish(name, self._make_section(name, lambda name=name: make(name)))  # type: ignore[misc]
        else:
            self._each_concurrently(missing, make, finish, concurrency)
        return [values[name] for name in ordered]

    def sections(self) -> dict[str, Any]:
        """Every stored section by name."""
        self._held.check()
        return self._api.get_sections() if self._done_sections else {}

    def upload(
        self,
        file: str | os.PathLike[str] | BinaryIO | bytes,
        *,
        filename: str | None = None,
        content_type: str | None = None,
        parts: int | None = None,
        on_progress: Callable[[int, int | None], None] | None = None,
    ) -> dict[str, Any]:
        """Uploads the result. With `parts` it goes by links, each part repeated alone. Return nothing from the handler then."""
        self._held.check()
        if isinstance(file, bytes):
            file = io.BytesIO(file)
        if isinstance(file, (str, os.PathLike)):
            path = Path(file)
            with path.open("rb") as opened:
                return self._upload(opened, filename or path.name, content_type, parts, on_progress)
        return self._upload(file, filename, content_type, parts, on_progress)

    def finish_output(self) -> None:
        """Sends the output that is still gathered; called before the outcome."""
        if self._output is not None:
            _flusher.remove(self._output)
            self._output.flush()

    def _upload(
        self,
        file: BinaryIO,
        filename: str | None,
        content_type: str | None,
        parts: int | None,
        on_progress: Callable[[int, int | None], None] | None,
    ) -> dict[str, Any]:
        guessed = mimetypes.guess_type(filename)[0] if filename else None
        upload = Upload(file, file_length(file), filename, content_type or guessed, parts, on_progress)
        found = self._api.upload(upload)
        self._held.has_upload = True
        return found

    def _make_section(self, name: str, make: Callable[[], Any]) -> Any:
        """Makes and stores one section. Its value is given as stored, so that every attempt sees the same."""
        value = dumps(make())
        # Work that is done is stored even after a cancel; only a lost lease discards it.
        if self._held.stop_reason in ("lost", "hard limit"):
            self._held.check()
        self._api.put_section(name, value)
        with self._sections_lock:
            self._done_sections.add(name)
        return loads(value)

    def _stop_between_sections(self) -> None:
        self._held.check()
        if self._held.is_hand_over_requested:
            self._held.stop("shutdown")
            self._held.check()

    def _each_concurrently(
        self, names: list[str], make: Callable[[str], Any], finish: Callable[[str, Any], None], concurrency: int
    ) -> None:
        """No section begins after the first failure or stop; those in flight are finished and stored."""
        waiting, running = iter(names), dict[Future[Any], str]()
        failure: BaseException | None = None
        with ThreadPoolExecutor(concurrency, thread_name_prefix="outlast-section") as pool:
            while True:
                while failure is None and len(running) < concurrency:
                    try:
                        self._stop_between_sections()
                        name = next(waiting)
                    except StopIteration:
                        break
                    except Exception as error:
                        failure = error
                        break
                    run = copy_context().run
                    running[pool.submit(run, self._make_section, name, lambda name=name: make(name))] = name
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    name = running.pop(future)
                    try:
                        finish(name, future.result())
                    except BaseException as error:
                        failure = failure or error
        if failure is not None:
            raise failure
