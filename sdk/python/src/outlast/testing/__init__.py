"""Helpers for the tests of your handlers: `run_job` without a server, `start_outlast` with the real one."""

from .delivery import Delivery, sign_delivery
from .run import JobRun, run_job
from .server import Server, start_outlast

__all__ = ["Delivery", "JobRun", "Server", "run_job", "sign_delivery", "start_outlast"]
