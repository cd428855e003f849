"""Durations as the API takes them: seconds as a number, a text such as "5m", or a timedelta."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Union

Duration = Union[int, float, str, timedelta]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_TEXT = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)?")


def seconds(value: Duration) -> float:
    """The duration in seconds; ValueError where it is not one."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, str):
        match = _TEXT.fullmatch(value)
        if match is None:
            raise ValueError(f'{value!r} is not a duration; use seconds or a text such as "500ms", "30s", "5m", "2h", "7d"')
        return float(match[1]) * _UNITS[match[2] or ""]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is not a duration; use a number of seconds, a text or a timedelta")
    if not value >= 0:
        raise ValueError(f"{value!r} is not a duration; it must not be negative")
    return float(value)


def duration(value: Duration) -> float | int | str:
    """A duration for a body: texts and numbers as they were given, once they are known to be durations."""
    checked = seconds(value)
    return checked if isinstance(value, timedelta) else value


def parse_time(text: str) -> datetime:
    """A time of the API; Python 3.10 does not read the Z."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def format_time(value: datetime | str) -> str:
    """RFC 3339; a datetime without a zone is an error, because the server cannot know which one was meant."""
    if isinstance(value, str):
        return value
    if value.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone; use datetime.now(timezone.utc) or .astimezone()")
    return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
