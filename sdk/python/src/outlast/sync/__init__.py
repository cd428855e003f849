# @generated from outlast/aio by scripts/make_sync.py; change it there.
"""The blocking client."""

from .client import Outlast
from .job import Job
from .listing import Listing
from .queue import Queue

__all__ = ["Job", "Listing", "Outlast", "Queue"]
