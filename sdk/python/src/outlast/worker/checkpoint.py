"""Checkpoints of a running job: the state from which the next attempt resumes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import CheckpointIncompatible
from ..schema import dumps, loads
from .held_job import HeldJob
from .job_api import JobApi

TICKS_PER_SAVE = 1000
SECONDS_PER_SAVE = 60.0


@dataclass(frozen=True)
class SavedState:
    """A checkpoint as an earlier attempt saved it."""

    data: Any
    schema_version: int


class Checkpoint:
    def __init__(self, held: HeldJob, api: JobApi) -> None:
        self._held = held
        self._api = api
        self._ticks = 0
        self._saved_at = time.monotonic()
        self._saved_for: frozenset[str] = frozenset()

    def load(self) -> SavedState | None:
        """The checkpoint of an earlier attempt; None where there is none.

        Raises CheckpointIncompatible where its version is not in the worker's `accepts_schema`.
        """
        handout = self._held.handout
        if handout.checkpoint_incompatible:
            raise CheckpointIncompatible(f"job {handout.id} has a checkpoint of a version that accepts_schema does not name")
        saved = handout.checkpoint
        if saved is None:
            return None
        data = loads(self._api.get_checkpoint_blob()) if saved.get("blobUrl") else saved["data"]
        return SavedState(data, saved["schemaVersion"])

    def save(self, data: Any, schema_version: int = 1) -> None:
        """Saves the state; it is durable when this returns. After a cancel it is saved, and then raises Cancelled."""
        if self._held.stop_reason in ("lost", "hard limit"):
            self._held.check()
        self._api.put_checkpoint(dumps(data), schema_version)
        self._ticks, self._saved_at, self._saved_for = 0, time.monotonic(), self._held.directives
        self._held.check()

    def tick(self, state: Callable[[], Any], schema_version: int = 1) -> None:
        """Call it in your loop: saves `state()` every 1,000 calls, every 60 s, and when the server asks for it."""
        if self.count_tick():
            self.save_tick(state, schema_version)

    def count_tick(self) -> bool:
        """Counts a tick; whether it must save. Raises where the work must stop and nothing is left to save."""
        self._ticks += 1
        if self._is_due():
            return True
        self._held.check()
        return False

    def save_tick(self, state: Callable[[], Any], schema_version: int) -> None:
        """Saves, and hands the job over where an operator asked for it: another worker resumes from here."""
        self.save(state(), schema_version)
        if self._held.is_hand_over_requested:
            self._held.stop("shutdown")
            self._held.check()

    def _is_due(self) -> bool:
        if self._held.is_hand_over_requested:
            return True
        if self._ticks >= TICKS_PER_SAVE or time.monotonic() - self._saved_at >= SECONDS_PER_SAVE:
            return True
        return "checkpoint_now" in self._held.directives - self._saved_for
