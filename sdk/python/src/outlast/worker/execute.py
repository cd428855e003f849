"""Runs a handler for one job and gives the outcome."""

from __future__ import annotations

import inspect
import io
import logging
import os
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..schema import SchemaMismatch, decode, dumps
from ..tracing import handling
from .async_job import AsyncRunningJob
from .held_job import HeldJob
from .job_api import JobApi
from .outcome import DeferOn, Outcome, after_raise, after_return
from .running_job import RunningJob

log = logging.getLogger("outlast")

# The server's default limit for a result inside an ack.
INLINE_BYTES_MAX = 256 * 1024


@dataclass(frozen=True)
class Handler:
    """A handler and how it is called."""

    function: Callable[..., Any]
    payload_type: Any = None
    defer_on: DeferOn | None = None
    is_batch: bool = False

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @staticmethod
    def of(function: Callable[..., Any], payload: Any = None, defer_on: DeferOn | None = None, is_batch: bool = False) -> Handler:
        """`payload` may also come from the annotation: `job: RunningJob[Order]`."""
        return Handler(function, payload if payload is not None else _annotated_payload(function), defer_on, is_batch)


def _annotated_payload(function: Callable[..., Any]) -> Any:
    try:
        hints = typing.get_type_hints(function)
    except Exception:
        # An annotation that cannot be read here, such as a name imported for type checkers only.
        return None
    for name in inspect.signature(function).parameters:
        annotation = hints.get(name)
        if typing.get_origin(annotation) in (RunningJob, AsyncRunningJob):
            argument = typing.get_args(annotation)[0]
            return None if isinstance(argument, typing.TypeVar) else argument
        return None
    return None


def prepare(handler: Handler, held: HeldJob, api: JobApi, on_progress: Callable[[], None]) -> RunningJob[Any]:
    """The job for the handler; SchemaMismatch where its payload does not fit."""
    return RunningJob(held, api, decode(handler.payload_type, held.handout.payload), on_progress)


def execute(
    handler: Handler, held: HeldJob, api: JobApi, on_progress: Callable[[], None]
) -> tuple[Outcome | None, BaseException | None]:
    """Runs a blocking handler to its end. Gives the outcome, None where there is nothing to report, and the error."""
    try:
        job = prepare(handler, held, api, on_progress)
        with handling(f"job {held.handout.queue}", held.handout.traceparent):
            value = handler.function(job)
        return conclude(held, job, value), None
    except BaseException as error:
        return after_raise(held, error, handler.defer_on), error


def conclude(held: HeldJob, job: RunningJob[Any], value: Any) -> Outcome | None:
    """The outcome of a handler that returned this value. A large or binary one is uploaded here."""
    if held.stop_reason in ("lost", "hard limit"):
        return None
    job.finish_output()
    if value is None:
        return after_return(held, None, has_result=held.has_upload)
    encoded = _inline(job, value)
    return after_return(held, encoded, has_result=True)


def _inline(job: RunningJob[Any], value: Any) -> bytes | None:
    """The JSON of a result for the ack; None where it was uploaded instead."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        job.upload(bytes(value), content_type="application/octet-stream")
        return None
    if isinstance(value, (os.PathLike, io.IOBase)) or (hasattr(value, "read") and not hasattr(value, "model_dump")):
        name = None if isinstance(value, (Path, os.PathLike)) else getattr(value, "name", None)
        job.upload(value, filename=os.path.basename(name) if isinstance(name, str) else None)
        return None
    encoded = dumps(value)
    if len(encoded) <= INLINE_BYTES_MAX:
        return encoded
    job.upload(encoded, content_type="application/json")
    return None


def execute_batch(
    handler: Handler, jobs: Sequence[tuple[HeldJob, JobApi]], on_progress: Callable[[], None]
) -> list[tuple[Outcome | None, BaseException | None]]:
    """Runs a handler that takes a list. It returns a list of results; an exception in the list fails that job alone."""
    outcomes: list[tuple[Outcome | None, BaseException | None]] = [(None, None)] * len(jobs)
    prepared: list[tuple[int, HeldJob, RunningJob[Any]]] = []
    for index, (held, api) in enumerate(jobs):
        try:
            prepared.append((index, held, prepare(handler, held, api, on_progress)))
        except SchemaMismatch as error:
            outcomes[index] = (after_raise(held, error), error)
    try:
        values = handler.function([job for _, _, job in prepared]) if prepared else []
        values = [None] * len(prepared) if values is None else list(values)
        if len(values) != len(prepared):
            raise ValueError(f"the handler returned {len(values)} results for {len(prepared)} jobs")
    except BaseException as error:
        for index, held, _ in prepared:
            outcomes[index] = (after_raise(held, error, handler.defer_on), error)
        return outcomes
    for (index, held, job), value in zip(prepared, values):
        try:
            if isinstance(value, BaseException):
                raise value
            outcomes[index] = (conclude(held, job, value), None)
        except BaseException as error:
            outcomes[index] = (after_raise(held, error, handler.defer_on), error)
    return outcomes
