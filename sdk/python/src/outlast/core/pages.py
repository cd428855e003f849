"""Lists: one page, or all of them. A page may be short or empty while another follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .calls import Query, fetch, get
from .steps import Emit, Plan


def page(path: str, query: Query, retries: int) -> Plan[dict[str, Any]]:
    answer = yield from fetch(get(path, query), retries)
    return {"items": answer["items"], "nextCursor": answer.get("nextCursor")}


def walk(path: str, query: Query, retries: int, make: Callable[[Any], Any]) -> Plan[None]:
    """Emits every item of every page."""
    cursor = query.get("cursor")
    while True:
        answer = yield from fetch(get(path, {**query, "cursor": cursor}), retries)
        for item in answer["items"]:
            yield Emit(make(item))
        cursor = answer.get("nextCursor")
        if cursor is None:
            return
