"""Objects of the API as Python sees them: attributes in snake_case over the wire's camelCase."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from .durations import format_time


def camel(name: str) -> str:
    """`visibility_timeout` as `visibilityTimeout`."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def snake(name: str) -> str:
    """`visibilityTimeout` as `visibility_timeout`."""
    return re.sub(r"(?<!^)([A-Z])", lambda match: "_" + match[1].lower(), name)


def to_wire(options: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments as a body: names in camelCase, timedeltas in seconds, times in RFC 3339."""
    return {camel(name): _value(value) for name, value in options.items()}


def _value(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return format_time(value)
    return value


class Record:
    """An object of the API. `data` is the object as the server sent it; fields that this version does not know are there too."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = dict(data)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            data = self.__dict__.get("data", {})
            for key in (camel(name), name):
                if key in data:
                    return data[key]
        known = ", ".join(map(snake, self.__dict__.get("data", {})))
        raise AttributeError(f"{type(self).__name__} has no {name}; there are {known}")

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and other.data == self.data

    # Its data changes when it is read again.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.data!r})"
