"""A job as a receive or a delivery hands it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from ..durations import parse_time

# The shortest lease of the API; also the answer where the times of the server make no sense.
LEASE_SECONDS_MIN = 1.0


@dataclass(frozen=True)
class Handout:
    """The fields of a hand-out. Servers before `x-outlast-version` leave some of them out."""

    id: str
    queue: str
    lease: str
    payload: Any
    attempt: int
    max_attempts: int
    lease_seconds: float
    defer_count: int = 0
    replays: int = 0
    key: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    deadline: datetime | None = None
    soft_time_limit: float | None = None
    hard_time_limit: float | None = None
    heartbeat_timeout: float | None = None
    drain_timeout: float = 30.0
    mode: str | None = None
    webhook_timeout: float | None = None
    traceparent: str | None = None
    checkpoint: Mapping[str, Any] | None = None
    checkpoint_incompatible: bool = False
    sections: frozenset[str] = frozenset()

    @staticmethod
    def parse(data: Mapping[str, Any], queue: str, server_time: datetime) -> Handout:
        deadline = data.get("deadline")
        return Handout(
            id=data["id"],
            queue=data.get("queue") or queue,
            lease=data["lease"],
            payload=data.get("payload"),
            attempt=data["attempt"],
            max_attempts=data["maxAttempts"],
            lease_seconds=remaining(data["leaseExpiresAt"], server_time),
            defer_count=data.get("deferCount", 0),
            replays=data.get("replays", 0),
            key=data.get("key"),
            tags=data.get("tags") or {},
            deadline=parse_time(deadline) if deadline else None,
            soft_time_limit=data.get("softTimeLimit"),
            hard_time_limit=data.get("hardTimeLimit"),
            heartbeat_timeout=data.get("heartbeatTimeout"),
            drain_timeout=data["drainTimeout"] if data.get("drainTimeout") is not None else 30.0,
            mode=data.get("mode"),
            webhook_timeout=data.get("webhookTimeout"),
            traceparent=data.get("traceparent"),
            checkpoint=data.get("checkpoint"),
            checkpoint_incompatible=bool(data.get("checkpointIncompatible")),
            sections=frozenset(data.get("sections") or ()),
        )


def server_time(headers: Mapping[str, str]) -> datetime:
    """The server's clock at the time of an answer, so that this machine's clock does not matter."""
    date = headers.get("date")
    try:
        return parsedate_to_datetime(date) if date else datetime.now().astimezone()
    except (TypeError, ValueError):
        return datetime.now().astimezone()


def remaining(expires_at: str, now: datetime) -> float:
    """The seconds until a time of the server. `Date` is cut to seconds, so up to one of them is too much."""
    left = (parse_time(expires_at) - now) / timedelta(seconds=1)
    return max(LEASE_SECONDS_MIN, left - 1.0 if left > 3.0 else left)
