"""Carries W3C `traceparent` from a publish to a handler and on to the publishes of that handler.

OpenTelemetry is used where it is installed and never required.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any

_current: ContextVar[str | None] = ContextVar("outlast_traceparent", default=None)


def outgoing_traceparent() -> str | None:
    """The trace of the caller: of OpenTelemetry's current span, else of the job that is being worked on."""
    carrier: dict[str, str] = {}
    if _has_opentelemetry():
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent") or _current.get()


@contextlib.contextmanager
def handling(name: str, traceparent: str | None) -> Iterator[None]:
    """Runs a handler inside the job's trace."""
    token = _current.set(traceparent)
    try:
        if not _has_opentelemetry():
            yield
            return
        with _span(name, traceparent):
            yield
    finally:
        _current.reset(token)


def _span(name: str, traceparent: str | None) -> Any:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({"traceparent": traceparent} if traceparent else {})
    return trace.get_tracer("outlast").start_as_current_span(name, context=context, kind=trace.SpanKind.CONSUMER)


_opentelemetry: bool | None = None


def _has_opentelemetry() -> bool:
    global _opentelemetry
    if _opentelemetry is None:
        try:
            # Other packages of the same namespace may be installed without it.
            _opentelemetry = find_spec("opentelemetry.trace") is not None
        except ModuleNotFoundError:
            _opentelemetry = False
    return _opentelemetry
