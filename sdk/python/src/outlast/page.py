"""One page of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Page(Generic[T]):
    """`next_cursor` is None on the last page; a page may be short or empty before that."""

    items: list[T]
    next_cursor: str | None
