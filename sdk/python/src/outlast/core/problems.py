"""Turns a problem document into an exception."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from ..errors import Refused, family
from .steps import Answer


def problem(answer: Answer) -> dict[str, Any]:
    """The problem document of an answer; empty where the body is something else, such as a proxy's page."""
    try:
        document = answer.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def refusal(answer: Answer) -> Refused:
    """The exception for an answer that is definite."""
    return refusal_of(problem(answer), answer.status, retry_after(answer.headers))


def refusal_of(document: Mapping[str, Any], status: int, after: float | None = None) -> Refused:
    """The exception for a problem document, also one inside a batch answer."""
    code = document.get("code")
    status = document.get("status", status)
    detail = document.get("detail") or document.get("title") or f"the server answered {status}"
    return family(code, status)(detail, code=code, status=status, errors=document.get("errors"), retry_after=after)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of Retry-After, which may be a number or an HTTP date."""
    text = headers.get("retry-after")
    if text is None:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(timezone.utc)).total_seconds())
    except (ValueError, TypeError):
        return None
