"""The outcome of an attempt, and the rules that turn the end of a handler into one."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..durations import seconds
from ..errors import Cancelled, Defer, LeaseLost, NotRetryable
from ..schema import SchemaMismatch, dumps
from .held_job import HeldJob

REASON_BYTES_MAX = 1024
# Statuses by which providers of language models ask for fewer requests.
PROVIDER_STATUSES = frozenset({429, 503, 529})

DeferOn = Callable[[BaseException], "Defer | None"]


@dataclass(frozen=True)
class Outcome:
    """`kind` is `ack`, `nack`, `defer`, `release` or `cancelled`; `result` is the encoded JSON of an ack."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    result: bytes | None = None

    def entry(self, job_id: str, lease: str) -> bytes:
        """The outcome as an entry of `POST /v1/outcomes`."""
        body = dumps({"id": job_id, "outcome": self.kind, "lease": lease, **self.fields})
        return body if self.result is None else body[:-1] + b',"result":' + self.result + b"}"


def after_return(held: HeldJob, result: bytes | None, *, has_result: bool) -> Outcome | None:
    """The outcome of a handler that returned. None where nothing may be reported."""
    reason = held.stop_reason
    if reason in ("lost", "hard limit"):
        return None
    if not has_result:
        # The handler may have stopped half-way: without a result the work does not count as done.
        if reason == "cancel":
            return Outcome("cancelled")
        if reason == "shutdown":
            return Outcome("release")
    return Outcome("ack", _usage(held), result)


def after_raise(held: HeldJob, error: BaseException, defer_on: DeferOn | None = None) -> Outcome | None:
    """The outcome of a handler that raised. None where nothing may be reported."""
    reason = held.stop_reason
    if reason in ("lost", "hard limit") or (isinstance(error, LeaseLost) and reason is None):
        return None
    if reason == "cancel":
        return Outcome("cancelled")
    if reason == "shutdown" or isinstance(error, Cancelled):
        return Outcome("release")
    if isinstance(error, (NotRetryable, SchemaMismatch)):
        return Outcome("nack", {"retryable": False, "reason": reason_of(error), **_usage(held)})
    deferred = error if isinstance(error, Defer) else defer_on(error) if defer_on is not None else None
    if deferred is not None:
        fields: dict[str, Any] = {"scope": deferred.scope}
        if deferred.after is not None:
            fields["retryAfter"] = seconds(deferred.after)
        if deferred.reason:
            fields["reason"] = clip(deferred.reason)
        return Outcome("defer", fields)
    return Outcome("nack", {"reason": reason_of(error), **_usage(held)})


def provider(error: BaseException) -> Defer | None:
    """For `defer_on`: holds the queue where an error of an LLM client says 429, 503 or 529, for its `retry-after`."""
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", None) or getattr(error, "status", None) or getattr(response, "status_code", None)
    if status not in PROVIDER_STATUSES:
        return None
    headers = getattr(response, "headers", None) or getattr(error, "headers", None) or {}
    after = headers.get("retry-after")
    try:
        wait: float | None = max(0.0, float(after)) if after is not None else None
    except ValueError:
        wait = None
    return Defer(wait, scope="queue", reason=reason_of(error))


def reason_of(error: BaseException) -> str:
    """The message of an error and the place of the innermost line, within the limit of the API."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if frames:
        place = frames[-1]
        text = f"{clip(text, REASON_BYTES_MAX - 200)} ({place.filename.rsplit('/', 1)[-1]}:{place.lineno} in {place.name})"
    return clip(text)


def clip(text: str, limit: int = REASON_BYTES_MAX) -> str:
    """At most so many bytes, without the characters that the API refuses."""
    clean = text.replace("\0", "").encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")
    return clean or "no reason"


def _usage(held: HeldJob) -> dict[str, Any]:
    return {"usage": held.usage} if held.usage else {}
