"""Signatures of deliveries and callbacks: Standard Webhooks."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Iterable, Mapping

from ..errors import BadSignature

TOLERANCE_SECONDS = 300
_MARK = "whsec_"


def verify(secret: str | Iterable[str], headers: Mapping[str, str], body: bytes | str, *, now: float | None = None) -> None:
    """Raises BadSignature unless the request is signed with one of the secrets and its time is within 300 s.

    `body` is the raw body, before parsing. Headers may have any case.
    """
    raw = body.encode() if isinstance(body, str) else body
    found = {name.lower(): value for name, value in headers.items()}
    identifier, sent_at, given = (found.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not identifier or not sent_at or not given:
        raise BadSignature("the request has no webhook-id, webhook-timestamp or webhook-signature")
    if not (sent_at.isascii() and sent_at.isdecimal()):
        raise BadSignature("webhook-timestamp is not a number of seconds")
    if abs((time.time() if now is None else now) - int(sent_at)) > TOLERANCE_SECONDS:
        raise BadSignature(f"webhook-timestamp is more than {TOLERANCE_SECONDS} s away from the clock of this machine")
    secrets = [secret] if isinstance(secret, str) else list(secret)
    is_genuine = False
    for one in secrets:
        expected = signature(one, identifier, sent_at, raw).encode()
        for candidate in given.split(" "):
            # No early end: the time does not depend on which signature matches.
            is_genuine |= hmac.compare_digest(expected, candidate.encode("utf-8", "replace"))
    if not is_genuine:
        raise BadSignature("no signature of the request matches the secret")


def signature(secret: str, identifier: str, timestamp: str, body: bytes) -> str:
    """The value of webhook-signature for one secret."""
    digest = hmac.new(_key(secret), f"{identifier}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def _key(secret: str) -> bytes:
    if not secret.startswith(_MARK):
        return secret.encode()
    try:
        return base64.b64decode(secret[len(_MARK) :], validate=True)
    except binascii.Error as error:
        raise ValueError("the secret begins with whsec_ and is not base64 after that") from error
