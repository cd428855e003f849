"""The async client. The blocking client in `outlast.sync` is generated from it: scripts/make_sync.py."""

from .client import AsyncOutlast
from .job import AsyncJob
from .listing import AsyncListing
from .queue import AsyncQueue

__all__ = ["AsyncJob", "AsyncListing", "AsyncOutlast", "AsyncQueue"]
