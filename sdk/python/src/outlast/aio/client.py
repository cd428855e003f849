"""The client: where a program starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar, overload

from ..core import calls
from ..core.steps import Answer, Request
from ..durations import Duration, seconds
from ..schema import dumps
from .io import AsyncTransport, default_transport, run
from .queue import AsyncQueue
from .resources import AsyncEvents, AsyncJobs, AsyncKeys, AsyncOperations, AsyncQueues, AsyncStats

P = TypeVar("P")
R = TypeVar("R")

DEFAULT_URL = "http://127.0.0.1:8080"


class AsyncOutlast:
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
        transport: AsyncTransport | None = None,
    ) -> None:
        self.url = url or os.environ.get("OUTLAST_URL") or DEFAULT_URL
        self.key = key or os.environ.get("OUTLAST_KEY")
        self.timeout = seconds(timeout)
        self.retries = retries
        self.transport = transport or default_transport(self.url, self.key, self.timeout)
        self.queues = AsyncQueues(self)
        self.jobs = AsyncJobs(self)
        self.keys = AsyncKeys(self)
        self.operations = AsyncOperations(self)
        self.events = AsyncEvents(self)
        self.stats = AsyncStats(self)

    @overload
    def queue(self, name: str) -> AsyncQueue[Any, Any]: ...
    @overload
    def queue(self, name: str, *, payload: type[P]) -> AsyncQueue[P, Any]: ...
    @overload
    def queue(self, name: str, *, result: type[R]) -> AsyncQueue[Any, R]: ...
    @overload
    def queue(self, name: str, *, payload: type[P], result: type[R]) -> AsyncQueue[P, R]: ...
    def queue(self, name: str, *, payload: Any = None, result: Any = None) -> AsyncQueue[Any, Any]:
        """A queue to publish to. Results are read into `result`: a pydantic model, a dataclass or a TypedDict."""
        return AsyncQueue(self, name, result)

    async def request(
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
        return await run(calls.fetch_answer(request, self.retries), self.transport)

    async def close(self) -> None:
        await self.transport.close()

    async def __aenter__(self) -> AsyncOutlast:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
