"""The transport and driver of `AsyncOutlast`, on aiohttp. Importing it needs the extra `outlast[async]`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Protocol, TypeVar

import aiohttp
from yarl import URL

from .core.steps import Answer, Close, Emit, NoAnswer, Open, Plan, Read, Request, Send, Sleep
from .transport import Target

T = TypeVar("T")


class AsyncTransport(Protocol):
    """Carries out the requests of a plan. `AsyncOutlast(transport=)` takes one of your own."""

    async def send(self, request: Request) -> Answer:
        """The whole answer; NoAnswer where none came."""

    async def open(self, request: Request) -> Answer:
        """The head of the answer and, for a 2xx, a stream; NoAnswer where none came."""

    async def read(self, stream: Any, timeout: float) -> bytes:
        """The next bytes of a stream, empty at its end; NoAnswer where it breaks."""

    def close_stream(self, stream: Any) -> None:
        """Gives a stream up; a second call does nothing."""

    async def close(self) -> None:
        """Closes every connection."""


class AiohttpTransport:
    """The default transport; its session is made by the first request, inside the running loop."""

    def __init__(self, url: str, key: str | None, timeout: float) -> None:
        self.target = Target(url, key)
        self.timeout = timeout
        self.server_version: str | None = None
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: Request) -> Answer:
        response = await self._begin(request)
        try:
            body = await response.read()
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            response.close()
            raise NoAnswer(f"the answer broke off: {error or type(error).__name__}", sent=True) from error
        return Answer(response.status, _lower(response), body)

    async def open(self, request: Request) -> Answer:
        response = await self._begin(request)
        if response.status in (200, 206):
            return Answer(response.status, _lower(response), stream=response)
        try:
            body = await response.read()
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            response.close()
            raise NoAnswer(f"the answer broke off: {error or type(error).__name__}", sent=True) from error
        return Answer(response.status, _lower(response), body)

    async def read(self, stream: Any, timeout: float) -> bytes:
        try:
            chunk: bytes = await asyncio.wait_for(stream.content.readany(), timeout)
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            raise NoAnswer(f"the stream broke: {error or type(error).__name__}", sent=True) from error
        return chunk

    def close_stream(self, stream: Any) -> None:
        if stream is not None:
            stream.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _begin(self, request: Request) -> aiohttp.ClientResponse:
        if self._session is None or self._session.closed:
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        if request.url is not None:
            url = self.target.link(request.url).geturl()
        else:
            url = f"{self.target.parts.scheme}://{self.target.parts.netloc}{self.target.path(request)}"
        limit = aiohttp.ClientTimeout(total=None, connect=self.timeout, sock_read=self.timeout + request.wait)
        try:
            response = await self._session.request(
                request.method,
                URL(url, encoded=True),
                headers=self.target.headers(request),
                data=request.body,
                allow_redirects=False,
                timeout=limit,
            )
        except aiohttp.ClientConnectorError as error:
            raise NoAnswer(f"cannot connect to {self.target.parts.netloc}: {error}", sent=False) from error
        except aiohttp.ConnectionTimeoutError as error:
            raise NoAnswer(f"cannot connect to {self.target.parts.netloc} in time", sent=False) from error
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            raise NoAnswer(f"no answer came: {error or type(error).__name__}", sent=True) from error
        version = response.headers.get("x-outlast-version")
        if version is not None:
            self.server_version = version
        return response


def _lower(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


async def run(plan: Plan[T], transport: AsyncTransport) -> T:
    """The value that the plan returns."""
    result: list[T] = []
    async for _ in _steps(plan, transport, result):
        pass
    return result[0]


async def iterate(plan: Plan[None], transport: AsyncTransport) -> AsyncIterator[Any]:
    """The values that the plan emits."""
    steps = _steps(plan, transport, [])
    try:
        async for step in steps:
            yield step.value
    finally:
        await steps.aclose()


async def _steps(plan: Plan[T], transport: AsyncTransport, result: list[T]) -> AsyncGenerator[Emit, None]:
    """As the blocking driver; a plan's value goes into `result`, because an async generator cannot return one."""
    opened: list[Any] = []
    reply: Any = None
    failure: NoAnswer | None = None
    try:
        while True:
            try:
                step = plan.throw(failure) if failure is not None else plan.send(reply)
            except StopIteration as end:
                result.append(end.value)
                return
            reply, failure = None, None
            try:
                if isinstance(step, Emit):
                    yield step
                elif isinstance(step, Send):
                    reply = await transport.send(step.request)
                elif isinstance(step, Sleep):
                    await asyncio.sleep(step.seconds)
                elif isinstance(step, Read):
                    reply = await transport.read(step.stream, step.timeout)
                elif isinstance(step, Open):
                    reply = await transport.open(step.request)
                    if reply.stream is not None:
                        opened.append(reply.stream)
                elif isinstance(step, Close):
                    transport.close_stream(step.stream)
            except NoAnswer as error:
                failure = error
    finally:
        plan.close()
        for stream in opened:
            transport.close_stream(stream)
