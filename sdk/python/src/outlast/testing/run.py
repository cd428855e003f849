"""`run_job`: runs a handler without a server, with saved work, a cancel or a kill at a chosen place."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from ..schema import dumps, loads
from ..worker.async_job import AsyncRunningJob
from ..worker.execute import Handler, conclude, execute, prepare
from ..worker.handout import Handout
from ..worker.held_job import HeldJob
from ..worker.outcome import Outcome, after_raise
from .memory import MemoryJobApi, Saved

# How long a child of `kill_after` may go without storing anything. A fork of a process with threads may also hang.
CHILD_SECONDS = 300.0


@dataclass
class JobRun:
    """The end of a handler: `outcome` is `{"ack": result}`, `{"nack": reason}` and so on; None where it was killed."""

    outcome: dict[str, Any] | None
    error: BaseException | None = None
    progress: list[dict[str, Any]] = field(default_factory=list)
    sections: dict[str, Any] = field(default_factory=dict)
    checkpoint: dict[str, Any] | None = None
    output: str = ""
    upload: bytes | None = None
    usage: dict[str, float] = field(default_factory=dict)
    # Each stored thing in order, as (kind, what).
    log: list[tuple[str, Any]] = field(default_factory=list)


def run_job(
    handler: Callable[..., Any],
    payload: Any = None,
    *,
    sections: Mapping[str, Any] | None = None,
    checkpoint: Any = None,
    schema_version: int = 1,
    attempt: int = 1,
    max_attempts: int = 5,
    queue: str = "test",
    cancel_after: int | None = None,
    kill_after: str | None = None,
) -> JobRun:
    """Runs a handler once, without a server.

    `sections` and `checkpoint` are the saved work of an earlier attempt. `cancel_after=3` requests a cancel once three
    sections, checkpoints, outputs or uploads were stored in all. `kill_after="section 140"` runs the handler in a child
    process and kills it with SIGKILL once it has stored 140 sections; also "checkpoint 2" and "output 1".
    """
    saved = Saved(sections=dict(sections or {}))
    handout = Handout(
        id=str(uuid.uuid4()),
        queue=queue,
        lease="0" * 32,
        payload=loads(dumps(payload)),
        attempt=attempt,
        max_attempts=max_attempts,
        lease_seconds=3600.0,
        checkpoint=None if checkpoint is None else {"data": checkpoint, "schemaVersion": schema_version},
        sections=frozenset(saved.sections),
    )
    if kill_after is not None:
        return _run_and_kill(handler, handout, saved, kill_after)
    held = HeldJob(handout)

    def on_stored(_kind: str, _count: int) -> None:
        if cancel_after is not None and len(saved.log) >= cancel_after:
            held.take_directives(frozenset({"cancel", "checkpoint_now"}))

    return _run(handler, held, saved, on_stored)


def _run(handler: Callable[..., Any], held: HeldJob, saved: Saved, on_stored: Callable[[str, int], None]) -> JobRun:
    prepared = Handler.of(handler)
    api = MemoryJobApi(held, saved, on_stored)
    reports: list[dict[str, Any]] = []

    def on_progress() -> None:
        progress = held.take_progress()
        if progress is not None:
            reports.append(progress)

    if prepared.is_async:
        outcome, error = asyncio.run(_execute_async(prepared, held, api, on_progress))
    else:
        outcome, error = execute(prepared, held, api, on_progress)
    return _ended(saved, _describe(outcome), error, reports, held.usage)


async def _execute_async(
    handler: Handler, held: HeldJob, api: MemoryJobApi, on_progress: Callable[[], None]
) -> tuple[Outcome | None, BaseException | None]:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(8) as pool:
        try:
            job = prepare(handler, held, api, on_progress)
            task = asyncio.ensure_future(handler.function(AsyncRunningJob(job, pool)))
            held.on_stop(lambda _: _cancel(loop, task))
            return conclude(held, job, await task), None
        except BaseException as error:
            return after_raise(held, error), error


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Future[Any]) -> None:
    loop.call_soon_threadsafe(task.cancel)


def _describe(outcome: Outcome | None) -> dict[str, Any] | None:
    if outcome is None:
        return None
    if outcome.kind == "ack":
        return {"ack": None if outcome.result is None else loads(outcome.result)}
    if outcome.kind == "nack":
        kind = "nack" if outcome.fields.get("retryable", True) else "dead"
        return {kind: outcome.fields["reason"]}
    if outcome.kind == "defer":
        return {"defer": outcome.fields}
    return {outcome.kind: True}


def _ended(
    saved: Saved,
    outcome: dict[str, Any] | None,
    error: BaseException | None,
    progress: list[dict[str, Any]],
    usage: dict[str, float],
) -> JobRun:
    return JobRun(outcome, error, progress, saved.sections, saved.checkpoint, saved.output, saved.upload, usage, saved.log)


def _run_and_kill(handler: Callable[..., Any], handout: Handout, saved: Saved, place: str) -> JobRun:
    """The child reports each stored thing over a pipe and waits; the parent lets it go on or kills it."""
    wanted = re.fullmatch(r"(section|checkpoint|output|upload) (\d+)", place)
    if wanted is None:
        raise ValueError(f'kill_after must be like "section 140", not {place!r}')
    ours, theirs = Pipe()
    child = os.fork()
    if child == 0:
        ours.close()
        _child(handler, handout, saved, theirs)
    theirs.close()
    progress: list[dict[str, Any]] = []
    outcome: dict[str, Any] | None = None
    try:
        while True:
            if not ours.poll(CHILD_SECONDS):
                os.kill(child, signal.SIGKILL)
                raise TimeoutError(f"the handler has stored nothing for {CHILD_SECONDS:.0f} s and not reached {place!r}")
            kind, count, saved, progress, outcome = ours.recv()
            if kind == "end":
                break
            if kind == wanted[1] and count == int(wanted[2]):
                os.kill(child, signal.SIGKILL)
                break
            ours.send(None)
    except EOFError:
        pass
    finally:
        os.waitpid(child, 0)
        ours.close()
    return _ended(saved, outcome, None, progress, {})


def _child(handler: Callable[..., Any], handout: Handout, saved: Saved, pipe: Connection) -> None:
    """Runs in the child and never returns."""
    try:
        held = HeldJob(handout)

        def on_stored(kind: str, count: int) -> None:
            pipe.send((kind, count, saved, [], None))
            pipe.recv()

        run = _run(handler, held, saved, on_stored)
        pipe.send(("end", 0, saved, run.progress, run.outcome))
    finally:
        os._exit(0)
