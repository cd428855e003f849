"""The parts of the blocking client that differ from the async one; `outlast/aio/io.py` has the same names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from ..driver import iterate, run
from ..transport import HttpTransport, Transport

T = TypeVar("T")


def default_transport(url: str, key: str | None, timeout: float) -> Transport:
    return HttpTransport(url, key, timeout)


def each(items: Iterable[T]) -> Iterator[T]:
    """The items of any iterable."""
    return iter(items)


__all__ = ["Transport", "default_transport", "each", "iterate", "run"]
