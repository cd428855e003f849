"""Single calls: one request, one answer, parsed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from ..errors import InDoubt, Refused
from ..schema import dumps
from .retry import Tries, exchange
from .steps import Answer, Plan, Request

Query = Mapping[str, Any]


def segment(text: str) -> str:
    """One segment of a path; `.` and `/` in names stay inside it."""
    return quote(text, safe="")


def query_of(values: Query | None) -> tuple[tuple[str, str], ...]:
    """Query parameters without those that are None; booleans as the API writes them."""
    pairs = []
    for name, value in (values or {}).items():
        if value is not None:
            pairs.append((name, str(value).lower() if isinstance(value, bool) else str(value)))
    return tuple(pairs)


def get(path: str, query: Query | None = None, *, wait: float = 0.0) -> Request:
    return Request("GET", path, query_of(query), wait=wait, repeatable=True)


def post(path: str, body: Any = None, *, repeatable: bool = False, headers: Mapping[str, str] | None = None) -> Request:
    content = b"" if body is None else body if isinstance(body, bytes) else dumps(body)
    return Request("POST", path, headers=_headers(headers), body=content, repeatable=repeatable)


def put(path: str, body: Any, *, query: Query | None = None, headers: Mapping[str, str] | None = None) -> Request:
    content = body if isinstance(body, bytes) else dumps(body)
    return Request("PUT", path, query_of(query), _headers(headers), content, repeatable=True)


def patch(path: str, body: Any, *, headers: Mapping[str, str] | None = None) -> Request:
    # The same patch twice leaves the same settings.
    return Request("PATCH", path, headers=_headers(headers), body=dumps(body), repeatable=True)


def delete(path: str, query: Query | None = None) -> Request:
    return Request("DELETE", path, query_of(query), repeatable=True)


def _headers(more: Mapping[str, str] | None) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    for name, value in (more or {}).items():
        headers[name.lower()] = value
    return headers


def fetch(request: Request, retries: int) -> Plan[Any]:
    """The parsed body of the answer; None where it has none."""
    answer = yield from exchange(request, Tries(retries + 1))
    return answer.json()


def fetch_answer(request: Request, retries: int) -> Plan[Answer]:
    return (yield from exchange(request, Tries(retries + 1)))


def replay(job_id: str, body: Any, retries: int) -> Plan[Any]:
    """Replays a job. A replay whose answer was lost is looked up: `replays` has grown if it took place."""
    before = yield from fetch(get(f"/v1/jobs/{segment(job_id)}"), retries)
    for is_last in (False, True):
        tries = Tries(retries + 1)
        try:
            answer = yield from exchange(post(f"/v1/jobs/{segment(job_id)}/replay", body), tries)
            return answer.json()
        except InDoubt:
            after = yield from fetch(get(f"/v1/jobs/{segment(job_id)}"), retries)
            if after["replays"] > before["replays"]:
                return after
            if is_last:
                raise


def delete_once(request: Request, retries: int, gone: str) -> Plan[Any]:
    """A deletion. After a lost answer, the code `gone` means that the first try did it."""
    tries = Tries(retries + 1)
    try:
        answer = yield from exchange(request, tries)
    except Refused as refused:
        if tries.in_doubt and refused.code == gone:
            return None
        raise
    return answer.json()
