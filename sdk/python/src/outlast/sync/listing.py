# @generated from outlast/aio by scripts/make_sync.py; change it there.
"""Lists of the API: iterate over all entries, or take one page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from ..core import pages
from ..page import Page
from .io import Transport, iterate, run

T = TypeVar("T")


class Listing(Generic[T]):
    """Iterates over the entries of all pages, short and empty ones too. Nothing is requested before."""

    def __init__(
        self,
        transport: Transport,
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

    def __iter__(self) -> Iterator[T]:
        return iterate(pages.walk(self._path, self._query, self._retries, self._make), self._transport)

    def page(self, cursor: str | None = None) -> Page[T]:
        """One page: the first, or the one at a `next_cursor`."""
        query = {**self._query, "cursor": cursor or self._query.get("cursor")}
        found = run(pages.page(self._path, query, self._retries), self._transport)
        return Page([self._make(item) for item in found["items"]], found["nextCursor"])
