"""Lists of the API: iterate over all entries, or take one page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Generic, TypeVar

from ..core import pages
from ..page import Page
from .io import AsyncTransport, iterate, run

T = TypeVar("T")


class AsyncListing(Generic[T]):
    """Iterates over the entries of all pages, short and empty ones too. Nothing is requested before."""

    def __init__(
        self,
        transport: AsyncTransport,
        path: str,
        query: Mapping[str, Any],
        retries: int,
        make: Callable[[Any], T],
    ) -> None:
        self._transport = transport
        self._path = path
        self._query = query
        self._retries = retries
        self._make = make

    def __aiter__(self) -> AsyncIterator[T]:
        return iterate(pages.walk(self._path, self._query, self._retries, self._make), self._transport)

    async def page(self, cursor: str | None = None) -> Page[T]:
        """One page: the first, or the one at a `next_cursor`."""
        query = {**self._query, "cursor": cursor or self._query.get("cursor")}
        found = await run(pages.page(self._path, query, self._retries), self._transport)
        return Page([self._make(item) for item in found["items"]], found["nextCursor"])
