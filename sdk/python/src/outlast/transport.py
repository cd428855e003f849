"""The transport of the standard library: `http.client` connections that are kept and reused, safe for many threads."""

from __future__ import annotations

import functools
import http.client
import os
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import SplitResult, urlencode, urlsplit

from ._version import __version__
from .core.steps import Answer, NoAnswer, Request

USER_AGENT = f"outlast-python/{__version__}"
# A connection that was idle for longer is not reused: a proxy may have dropped it without a word.
IDLE_SECONDS_MAX = 55.0
IDLE_CONNECTIONS_MAX = 64
READ_BYTES = 64 * 1024


class Transport(Protocol):
    """Carries out the requests of a plan. `Outlast(transport=)` takes one of your own."""

    def send(self, request: Request) -> Answer:
        """The whole answer; NoAnswer where none came."""

    def open(self, request: Request) -> Answer:
        """The head of the answer and, for a 2xx, a stream; NoAnswer where none came."""

    def read(self, stream: Any, timeout: float) -> bytes:
        """The next bytes of a stream, empty at its end; NoAnswer where it breaks."""

    def close_stream(self, stream: Any) -> None:
        """Gives a stream up; a second call does nothing."""

    def close(self) -> None:
        """Closes every idle connection."""


class Target:
    """The address of a server, and the headers of every request to it."""

    def __init__(self, url: str, key: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must be like https://outlast.example, not {url!r}")
        self.url = url.rstrip("/")
        self.prefix = parts.path.rstrip("/")
        self.parts = parts
        self.base_headers = {"user-agent": USER_AGENT, "accept": "application/json"}
        self._authorization = f"Bearer {key}" if key else None

    def headers(self, request: Request) -> dict[str, str]:
        headers = {**self.base_headers, **request.headers}
        if request.with_key and self._authorization:
            headers["authorization"] = self._authorization
        return headers

    def path(self, request: Request) -> str:
        path = self.prefix + request.path
        return f"{path}?{urlencode(request.query)}" if request.query else path

    def link(self, url: str) -> SplitResult:
        """Where a link leads: a path of this server, or another host."""
        return urlsplit(url if "//" in url else f"{self.parts.scheme}://{self.parts.netloc}{url}")


class Connection:
    """One connection, used by one request at a time."""

    def __init__(self, parts: SplitResult, timeout: float) -> None:
        host = parts.hostname or ""
        if parts.scheme == "https":
            self.http: http.client.HTTPConnection = http.client.HTTPSConnection(host, parts.port, timeout=timeout, context=_tls())
        else:
            self.http = http.client.HTTPConnection(host, parts.port, timeout=timeout)
        self.idle_since = 0.0
        self.response: http.client.HTTPResponse | None = None

    def connect(self, timeout: float, answer_timeout: float) -> None:
        """Connects where that is needed, and sets how long an answer may take; NoAnswer with `sent` false where it fails."""
        if self.http.sock is None:
            self.http.timeout = timeout
            try:
                self.http.connect()
            except OSError as error:
                self.http.close()
                raise NoAnswer(f"cannot connect to {self.http.host}:{self.http.port}: {error}", sent=False) from error
        self.http.sock.settimeout(answer_timeout)

    def begin(self, method: str, path: str, headers: dict[str, str], body: Any) -> None:
        """Sends the request."""
        try:
            self.http.request(method, path, body=body, headers=headers)
        except (OSError, http.client.HTTPException) as error:
            # A server that refuses a large body early answers and closes before it has read all of it.
            if isinstance(error, (BrokenPipeError, ConnectionResetError)) and self.http.sock is not None:
                return
            self.close()
            raise NoAnswer(f"the connection broke while sending: {error}", sent=True) from error

    def head(self) -> http.client.HTTPResponse:
        """Reads the head of the answer."""
        try:
            response = self.http.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise NoAnswer(f"no answer came: {error or type(error).__name__}", sent=True) from error
        # `http.client` takes a head that breaks off for a complete one. A complete one says how long its body is.
        if response.length is None and not response.chunked:
            self.close()
            raise NoAnswer("the answer broke off in its head", sent=True)
        self.response = response
        return response

    def answer(self) -> Answer:
        """Reads the whole answer."""
        response = self.head()
        try:
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise NoAnswer(f"the answer broke off: {error or type(error).__name__}", sent=True) from error
        return Answer(response.status, lower(response), body)

    def is_reusable(self) -> bool:
        """False where the other side has closed the connection or sent bytes that were not asked for."""
        sock = self.http.sock
        if sock is None or time.monotonic() - self.idle_since > IDLE_SECONDS_MAX:
            return False
        try:
            return not is_readable(sock, 0)
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        self.http.close()


@functools.cache
def _tls() -> ssl.SSLContext:
    """Made once: reading the certificates of the machine takes milliseconds."""
    return ssl.create_default_context()


def lower(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def is_readable(sock: socket.socket, timeout: float, *others: int) -> bool:
    """Whether the socket has bytes or an end to read; also returns when one of the other descriptors is readable."""
    descriptor = sock.fileno()
    if not hasattr(select, "poll"):
        return bool(descriptor in select.select([descriptor, *others], [], [], max(0.0, timeout))[0])
    poll = select.poll()
    for one in (descriptor, *others):
        poll.register(one, select.POLLIN)
    return any(ready == descriptor for ready, _ in poll.poll(max(0, int(timeout * 1000))))


class HttpTransport:
    """The default transport."""

    def __init__(self, url: str, key: str | None, timeout: float) -> None:
        self.target = Target(url, key)
        self.timeout = timeout
        # Set by the first answer of a server that sends it.
        self.server_version: str | None = None
        self._idle: deque[Connection] = deque()
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def send(self, request: Request) -> Answer:
        connection = self._begin(request)
        answer = connection.answer()
        self.learn_version(answer.headers)
        self._put_back(connection, request)
        return answer

    def open(self, request: Request) -> Answer:
        connection = self._begin(request)
        response = connection.head()
        headers = lower(response)
        self.learn_version(headers)
        if response.status in (200, 206):
            return Answer(response.status, headers, stream=connection)
        try:
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NoAnswer(f"the answer broke off: {error}", sent=True) from error
        self._put_back(connection, request)
        return Answer(response.status, headers, body)

    def read(self, stream: Any, timeout: float) -> bytes:
        response = stream.response
        if stream.http.sock is not None:
            stream.http.sock.settimeout(timeout)
        try:
            chunk: bytes = response.read1(READ_BYTES)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise NoAnswer(f"the stream broke: {error or type(error).__name__}", sent=True) from error
        if not chunk and response.length:
            raise NoAnswer(f"the stream broke {response.length} bytes before its end", sent=True)
        return chunk

    def close_stream(self, stream: Any) -> None:
        if stream is not None:
            if stream.response is not None:
                stream.response.close()
            stream.close()

    def close(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def connection(self) -> Connection:
        """A connection of the caller's own, for calls that wait."""
        return Connection(self.target.parts, self.timeout)

    def learn_version(self, headers: Mapping[str, str]) -> None:
        version = headers.get("x-outlast-version")
        if version is not None:
            self.server_version = version

    def _begin(self, request: Request) -> Connection:
        if request.url is not None:
            parts = self.target.link(request.url)
            connection = Connection(parts, self.timeout)
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        else:
            connection, path = self._take(), self.target.path(request)
        connection.connect(self.timeout, self.timeout + request.wait)
        connection.begin(request.method, path, self.target.headers(request), request.body)
        return connection

    def _take(self) -> Connection:
        with self._lock:
            if self._pid != os.getpid():
                # Sockets of before a fork belong to the parent.
                self._idle.clear()
                self._pid = os.getpid()
            while self._idle:
                connection = self._idle.pop()
                if connection.is_reusable():
                    return connection
                connection.close()
        return Connection(self.target.parts, self.timeout)

    def _put_back(self, connection: Connection, request: Request) -> None:
        is_closed = connection.http.sock is None
        if request.url is not None or is_closed:
            connection.close()
            return
        connection.idle_since = time.monotonic()
        with self._lock:
            if len(self._idle) < IDLE_CONNECTIONS_MAX:
                self._idle.append(connection)
                return
        connection.close()
