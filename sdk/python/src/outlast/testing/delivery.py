"""Genuine deliveries for tests of webhooks."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from ..schema import dumps
from ..webhook.signature import signature


@dataclass(frozen=True)
class Delivery:
    """A signed request: its headers and its raw body."""

    headers: dict[str, str]
    body: bytes


def sign_delivery(secret: str, body: Any = None, *, webhook_id: str | None = None, **fields: Any) -> Delivery:
    """A delivery as the server signs it. `body` is the payload, or the raw bytes of a whole body; `fields` replace others."""
    identifier = webhook_id or str(uuid.uuid4())
    raw = body if isinstance(body, bytes) else dumps(_delivery(identifier, body, fields))
    sent_at = str(int(time.time()))
    headers = {
        "content-type": "application/json",
        "webhook-id": identifier,
        "webhook-timestamp": sent_at,
        "webhook-signature": signature(secret, identifier, sent_at, raw),
    }
    return Delivery(headers, raw)


def _delivery(identifier: str, payload: Any, fields: dict[str, Any]) -> dict[str, Any]:
    now = datetime.now(timezone.utc)
    lease = uuid.uuid4().hex
    return {
        "id": identifier,
        "queue": "test",
        "payload": payload,
        "attempt": 1,
        "maxAttempts": 5,
        "deferCount": 0,
        "replays": 0,
        "createdAt": now.isoformat(),
        "lease": lease,
        "leaseExpiresAt": (now + timedelta(seconds=30)).isoformat(),
        "mode": "standard",
        "webhookTimeout": 15,
        **fields,
    }
