"""Jobs that outlast the request: the client, the worker and the webhooks of Outlast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .core.publish import Item, PublishOptions
from .errors import (
    BadSignature,
    BodyConsumed,
    Busy,
    Cancelled,
    CheckpointIncompatible,
    Conflict,
    Defer,
    DownloadDamaged,
    Forbidden,
    InDoubt,
    InvalidRequest,
    JobCancelled,
    JobEnded,
    JobExpired,
    JobFailed,
    LeaseLost,
    NotFound,
    NotRetryable,
    OutlastError,
    Refused,
    ResultIsFile,
    TooLarge,
    Unauthorized,
    Unavailable,
    WaitTimeout,
)
from .page import Page
from .record import Record
from .sync import Job, Listing, Outlast, Queue
from .worker import AsyncRunningJob, RunningJob, SavedState, Worker, provider

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .aio import AsyncJob, AsyncListing, AsyncOutlast, AsyncQueue

_ASYNC = ("AsyncJob", "AsyncListing", "AsyncOutlast", "AsyncQueue")


def item(payload: Any, **options: Unpack[PublishOptions]) -> Item:
    """A payload with options, for `publish_many`."""
    found: Mapping[str, Any] = options
    return Item(payload, found)


def __getattr__(name: str) -> Any:
    """The async client is loaded when it is used, because it needs aiohttp."""
    if name in _ASYNC:
        try:
            from . import aio
        except ImportError as error:
            raise ImportError(f"{name} needs aiohttp; install outlast[async]") from error
        return getattr(aio, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AsyncJob",
    "AsyncListing",
    "AsyncOutlast",
    "AsyncQueue",
    "AsyncRunningJob",
    "BadSignature",
    "BodyConsumed",
    "Busy",
    "Cancelled",
    "CheckpointIncompatible",
    "Conflict",
    "Defer",
    "DownloadDamaged",
    "Forbidden",
    "InDoubt",
    "InvalidRequest",
    "Item",
    "Job",
    "JobCancelled",
    "JobEnded",
    "JobExpired",
    "JobFailed",
    "LeaseLost",
    "Listing",
    "NotFound",
    "NotRetryable",
    "Outlast",
    "OutlastError",
    "Page",
    "PublishOptions",
    "Queue",
    "Record",
    "Refused",
    "ResultIsFile",
    "RunningJob",
    "SavedState",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "WaitTimeout",
    "Worker",
    "__version__",
    "item",
    "provider",
]
