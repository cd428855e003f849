"""Every exception of this package.

`Refused` is definite: the server stored nothing. `InDoubt` is not: the request may have been stored.
The family of a code comes from the table `FAMILIES`, which a test compares with docs/reference/ERRORS.md.
"""

from __future__ import annotations

from typing import Any


class OutlastError(Exception):
    """The base of every error of this package."""


class Refused(OutlastError):
    """The server refused the request and stored nothing."""

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        status: int | None = None,
        errors: list[dict[str, Any]] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.status = status
        self.errors = errors or []
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}" if self.code else self.detail

    # The default pickle support passes positional arguments only; a worker's child process sends errors to its parent.
    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.detail,), self.__dict__)


class InvalidRequest(Refused):
    """A field, parameter, header or method is wrong; `errors` names each field."""


class Unauthorized(Refused):
    """The key or token is missing, wrong, expired or revoked."""


class Forbidden(Refused):
    """The key lacks the scope that the call needs."""


class NotFound(Refused):
    """The queue, job or other object does not exist within the reach of the key, or its result has expired."""


class Conflict(Refused):
    """The state of the object does not allow the call."""


class LeaseLost(Conflict):
    """Another attempt may have the job: stop working on it."""


class TooLarge(Refused):
    """The body, payload, batch or URL is larger than its limit."""


class Busy(Refused):
    """A share or quota is used up; repeat after `retry_after`."""


class Unavailable(Refused):
    """The server or a part behind it is not available; nothing was stored."""


class InDoubt(OutlastError):
    """No usable answer came: the request may have been stored."""


class WaitTimeout(OutlastError):
    """The job has not ended within the timeout; it goes on."""


class JobEnded(OutlastError):
    """The base of the ends of a job that have no result. `job` is the job as last read."""

    def __init__(self, message: str, job: Any = None, reason: str | None = None) -> None:
        super().__init__(message)
        self.job = job
        self.reason = reason


class JobFailed(JobEnded):
    """The job is a dead letter; `reason` is a word of the API, such as `attempts_exhausted`."""


class JobCancelled(JobEnded):
    """The job was cancelled; `reason` is `user` or `timeout`."""


class JobExpired(JobEnded):
    """The job had succeeded; its result has been deleted."""


class ResultIsFile(OutlastError):
    """The result is an upload that is not small JSON: use `job.download`."""


class DownloadDamaged(OutlastError):
    """The downloaded bytes do not match the recorded length or SHA-256."""


class CheckpointIncompatible(OutlastError):
    """A checkpoint exists whose version this worker does not accept."""


class Cancelled(OutlastError):
    """The work must stop. `reason` is `cancel`, `shutdown`, `hand over` or `hard limit`."""

    def __init__(self, reason: str = "cancel") -> None:
        super().__init__(f"the work must stop: {reason}")
        self.reason = reason


class NotRetryable(OutlastError):
    """Raise it in a handler: the job becomes a dead letter at once."""


class Defer(OutlastError):
    """Raise it in a handler: the job comes back after `after`, and no attempt is charged."""

    def __init__(self, after: Any = None, *, scope: str = "job", reason: str | None = None) -> None:
        if scope not in ("job", "queue"):
            raise ValueError(f'scope must be "job" or "queue", not {scope!r}')
        super().__init__(reason or "deferred")
        self.after = after
        self.scope = scope
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.after,), self.__dict__)


class BadSignature(OutlastError):
    """A webhook is not signed with a known secret, or its time is too far away."""


class BodyConsumed(OutlastError):
    """A parser has read the body of a webhook before the adapter could; the message names the line to move."""


# The family of each code. A code that is not in the table gets the family of its status.
FAMILIES: dict[str, type[Refused]] = {
    "invalid_request": InvalidRequest,
    "lease_required": InvalidRequest,
    "method_not_allowed": InvalidRequest,
    "unsupported_media_type": InvalidRequest,
    "unsupported_transfer_encoding": InvalidRequest,
    "unauthorized": Unauthorized,
    "forbidden": Forbidden,
    "route_not_found": NotFound,
    "queue_not_found": NotFound,
    "job_not_found": NotFound,
    "checkpoint_not_found": NotFound,
    "section_not_found": NotFound,
    "result_not_found": NotFound,
    "upload_not_found": NotFound,
    "key_not_found": NotFound,
    "operation_not_found": NotFound,
    "event_not_found": NotFound,
    "source_not_found": NotFound,
    "job_expired": NotFound,
    "queue_exists": Conflict,
    "set_by_file": Conflict,
    "queue_not_empty": Conflict,
    "lease_lost": LeaseLost,
    "sections_full": Conflict,
    "output_full": Conflict,
    "output_gap": Conflict,
    "not_running": Conflict,
    "outcome_conflict": Conflict,
    "no_cancel_requested": Conflict,
    "not_replayable": Conflict,
    "key_taken": Conflict,
    "last_admin_key": Conflict,
    "payload_fixed": Conflict,
    "result_exists": Conflict,
    "uploads_full": Conflict,
    "not_pullable": Conflict,
    "version_mismatch": Conflict,
    "payload_too_large": TooLarge,
    "uri_too_long": TooLarge,
    "too_many_requests": Busy,
    "request_timeout": Unavailable,
    "overloaded": Busy,
    "draining": Unavailable,
    "unavailable": Unavailable,
    "store_unavailable": Unavailable,
    "blobs_unavailable": Unavailable,
    "secrets_sealed": Unavailable,
    "disk_full": Unavailable,
    "result_missing": Refused,
    "result_damaged": Refused,
    "data_damaged": Refused,
    "job_set_aside": Refused,
    "internal": Refused,
}

_BY_STATUS: dict[int, type[Refused]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: InvalidRequest,
    408: Unavailable,
    409: Conflict,
    410: NotFound,
    412: Conflict,
    413: TooLarge,
    414: TooLarge,
    415: InvalidRequest,
    429: Busy,
    431: TooLarge,
    503: Unavailable,
    507: Unavailable,
}


def family(code: str | None, status: int) -> type[Refused]:
    """The class for a refusal with this code and status."""
    if code in FAMILIES:
        return FAMILIES[code]
    return _BY_STATUS.get(status, Refused)
