"""The state of one job in the hands of this process: its lease, and why its work must stop.

Shared by the thread of the handler, the keeper and the reporter.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ..errors import Cancelled, LeaseLost
from .handout import Handout

JOIN_AGE = 0.25


class HeldJob:
    def __init__(self, handout: Handout) -> None:
        self.handout = handout
        self.id = handout.id
        self.taken_at = time.monotonic()
        self.cancelled = threading.Event()
        self.soft_limit = threading.Event()
        self.shutting_down = threading.Event()
        # Set once the outcome is stored, refused for good, or given up.
        self.reported = threading.Event()
        self.directives: frozenset[str] = frozenset()
        self.stop_reason: str | None = None
        # The handler has ended: only the reporter still needs the lease.
        self.is_concluded = False
        # The shutdown has released the job; the handler's own outcome is dropped.
        self._is_abandoned = False
        # A piece of the result was uploaded; the ack carries none.
        self.has_upload = False
        self.next_beat_at = 0.0
        # A job joins the keeper's open call from this time on: jobs of milliseconds cost no heartbeat.
        self.joins_at = self.taken_at + JOIN_AGE
        self.is_hand_over_requested = False
        self.usage: dict[str, float] = {}
        self._on_stop: Callable[[str], None] | None = None
        self._lock = threading.Lock()
        self._progress: dict[str, Any] | None = None
        self._lease = handout.lease
        self._lease_until = 0.0
        self._lease_seconds = 0.0
        self.renew(handout.lease_seconds, self.taken_at)

    @property
    def lease(self) -> str:
        return self._lease

    @property
    def beat_interval(self) -> float:
        """A third of the lease or of the heartbeat timeout; less of very short ones, whose length is only roughly known."""
        shortest = min(self._lease_seconds, self.handout.heartbeat_timeout or self._lease_seconds)
        return shortest / 3 if shortest >= 6 else shortest / 4

    def renew(self, lease_seconds: float, since: float) -> None:
        """The lease lasts so long, counted from a time of the local clock."""
        with self._lock:
            self._lease_seconds = lease_seconds
            self._lease_until = since + lease_seconds
            self.next_beat_at = since + self.beat_interval

    def hand_over(self, handout: Handout) -> None:
        """A redelivery brought a new lease for work that goes on."""
        with self._lock:
            self._lease = handout.lease
        self.renew(handout.lease_seconds, time.monotonic())

    def hold_beats_back(self, seconds: float) -> None:
        """No heartbeat for so long."""
        with self._lock:
            self.joins_at = self.next_beat_at = time.monotonic() + seconds

    def conclude(self) -> bool:
        """The handler has ended; false where the shutdown has released the job before."""
        with self._lock:
            self.is_concluded = True
            return not self._is_abandoned

    def abandon(self) -> bool:
        """The shutdown releases the job; false where its handler has ended, whose outcome counts then."""
        with self._lock:
            if self.is_concluded:
                return False
            self._is_abandoned = True
            return True

    def may_report(self) -> bool:
        """Whether a repeated report can still count. After an outage the server adds up to one more lease."""
        return self.stop_reason != "lost" and time.monotonic() < self._lease_until + self._lease_seconds

    def stop(self, reason: str) -> None:
        """Asks the work to stop: `cancel`, `lost`, `shutdown` or `hard limit`. A lost lease overrides the others."""
        with self._lock:
            if self.stop_reason in (reason, "lost", "hard limit"):
                return
            self.stop_reason = reason
            notify = self._on_stop
        self.cancelled.set()
        if notify is not None:
            notify(reason)

    def on_stop(self, notify: Callable[[str], None]) -> None:
        """Calls back when the work must stop, at once if it already must."""
        with self._lock:
            self._on_stop = notify
            reason = self.stop_reason
        if reason is not None:
            notify(reason)

    def take_directives(self, directives: frozenset[str]) -> None:
        self.directives = directives
        if "hand_over" in directives:
            self.is_hand_over_requested = True
        if "cancel" in directives:
            self.stop("cancel")

    def check(self) -> None:
        """Raises where the work must stop."""
        if self.stop_reason in ("lost", "hard limit"):
            raise LeaseLost(f"job {self.id} is in other hands ({self.stop_reason})", code="lease_lost", status=409)
        if self.stop_reason is not None:
            raise Cancelled(self.stop_reason)

    def set_progress(self, progress: dict[str, Any]) -> None:
        with self._lock:
            self._progress = {**(self._progress or {}), **progress}

    def take_progress(self) -> dict[str, Any] | None:
        with self._lock:
            progress, self._progress = self._progress, None
            return progress

    def put_back_progress(self, progress: dict[str, Any]) -> None:
        """Progress that could not be sent; what was set meanwhile is newer."""
        with self._lock:
            self._progress = {**progress, **(self._progress or {})}

    @property
    def has_progress(self) -> bool:
        return self._progress is not None
