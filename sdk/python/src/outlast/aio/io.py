"""The parts of the async client that differ from the blocking one; `outlast/sync/io.py` has the same names."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import TypeVar

from ..aio_transport import AiohttpTransport, AsyncTransport, iterate, run

T = TypeVar("T")


def default_transport(url: str, key: str | None, timeout: float) -> AsyncTransport:
    return AiohttpTransport(url, key, timeout)


async def each(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    """The items of any iterable."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


__all__ = ["AsyncTransport", "default_transport", "each", "iterate", "run"]
