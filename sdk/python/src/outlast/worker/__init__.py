"""The worker."""

from .async_job import AsyncRunningJob
from .checkpoint import SavedState
from .outcome import Outcome, provider
from .running_job import RunningJob
from .worker import Worker

__all__ = ["AsyncRunningJob", "Outcome", "RunningJob", "SavedState", "Worker", "provider"]
