# @generated from outlast/aio by scripts/make_sync.py; change it there.
"""The client: where a program starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar, overload

from ..core import calls
from ..core.steps import Answer, Request
from ..durations import Duration, seconds
from ..schema import dumps
from .io import Transport, default_transport, run
from .queue import Queue
from .resources import Events, Jobs, Keys, Operations, Queues, Stats

P = TypeVar("P")
R = TypeVar("R")

DEFAULT_URL = "http://127.0.0.1:8080"


class Outlast:
    """A client of one server. `url` and `key` come from OUTLAST_URL and OUTLAST_KEY where they are not given.

    `timeout` is how long one answer may take, on top of waits; `retries` is how often a call is sent again.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        timeout: Duration = 30,
        retries: int = 3,
        transport: Transport | None = None,
    ) -> None:
        self.url = url or os.environ.get("OUTLAST_URL") or DEFAULT_URL
        self.key = key or os.environ.get("OUTLAST_KEY")
        self.timeout = seconds(timeout)
        self.retries = retries
        self.transport = transport or default_transport(self.url, self.key, self.timeout)
        self.queues = Queues(self)
        self.jobs = Jobs(self)
        self.keys = Keys(self)
        self.operations = Operations(self)
        self.events = Events(self)
        self.stats = Stats(self)

    @overload
    def queue(self, name: str) -> Queue[Any, Any]: ...
    @overload
    def queue(self, name: str, *, payload: type[P]) -> Queue[P, Any]: ...
    @overload
    def queue(self, name: str, *, result: type[R]) -> Queue[Any, R]: ...
    @overload
    def queue(self, name: str, *, payload: type[P], result: type[R]) -> Queue[P, R]: ...
    def queue(self, name: str, *, payload: Any = None, result: Any = None) -> Queue[Any, Any]:
        """A queue to publish to. Results are read into `result`: a pydantic model, a dataclass or a TypedDict."""
        return Queue(self, name, result)

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Any call of the API. Sent again after a lost answer only where the method allows it: GET, PUT, DELETE."""
        body = None if json is None else dumps(json)
        fixed = {} if body is None else {"content-type": "application/json"}
        request = Request(
            method.upper(),
            path,
            calls.query_of(query),
            {**fixed, **(headers or {})},
            body,
            repeatable=method.upper() in ("GET", "HEAD", "PUT", "DELETE"),
        )
        return run(calls.fetch_answer(request, self.retries), self.transport)

    def close(self) -> None:
        self.transport.close()

    def __enter__(self) -> Outlast:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
