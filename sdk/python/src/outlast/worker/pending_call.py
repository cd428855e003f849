"""A request that waits on the server, on a connection of its own, and that another thread can end early."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

from ..core.steps import Answer, NoAnswer, Request
from ..transport import Connection, HttpTransport, is_readable

# How long a withdrawn call waits for the server to notice.
WITHDRAW_SECONDS = 2.0


class Waker:
    """Wakes a thread that waits for a socket."""

    def __init__(self) -> None:
        self._receiving, self._sending = socket.socketpair()
        self._receiving.setblocking(False)
        self._sending.setblocking(False)

    def wake(self) -> None:
        try:
            self._sending.send(b"1")
        except OSError:
            # Full: the thread will wake anyway. Closed: there is no thread any more.
            return

    def fileno(self) -> int:
        return self._receiving.fileno()

    def wait(self, timeout: float) -> None:
        is_readable(self._receiving, timeout)
        self.drain()

    def drain(self) -> None:
        try:
            while self._receiving.recv(4096):
                pass
        except OSError:
            return

    def close(self) -> None:
        self._receiving.close()
        self._sending.close()


class PendingCall:
    """One request at a time: `begin`, `is_ready` as often as needed, then `answer` or `abort`."""

    def __init__(self, transport: HttpTransport) -> None:
        self._transport = transport
        self._connection: Connection | None = None
        self._pid = os.getpid()
        self.deadline = 0.0

    def begin(self, request: Request) -> None:
        """Sends the request; NoAnswer where that fails."""
        connection = self._connection
        if connection is None or not connection.is_reusable():
            self.abort()
            connection = self._connection = self._transport.connection()
        limit = self._transport.timeout + request.wait
        self.deadline = time.monotonic() + limit
        target = self._transport.target
        try:
            connection.connect(self._transport.timeout, limit)
            connection.begin(request.method, target.path(request), target.headers(request), request.body)
        except NoAnswer:
            self.abort()
            raise

    def is_ready(self, timeout: float, waker: Waker) -> bool:
        """Whether the answer has begun, after at most so many seconds or a wake-up."""
        sock = self._connection.http.sock if self._connection is not None else None
        if sock is None:
            return True
        return is_readable(sock, timeout, waker.fileno())

    def answer(self) -> Answer:
        """Reads the answer; the connection stays for the next request."""
        connection = self._connection
        if connection is None:
            raise NoAnswer("the call was aborted", sent=True)
        try:
            answer = connection.answer()
        except NoAnswer:
            self.abort()
            raise
        connection.idle_since = time.monotonic()
        self._transport.learn_version(answer.headers)
        return answer

    def abort(self) -> None:
        """Gives the request up. The server notices that the connection is closed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def withdraw(self, seconds: float, waker: Waker) -> Answer | None:
        """Closes the sending half, which ends the wait on the server, and gives the answer that was already on its way."""
        sock = self._connection.http.sock if self._connection is not None else None
        if sock is None:
            return None
        try:
            sock.shutdown(socket.SHUT_WR)
            waker.drain()
            if is_readable(sock, seconds):
                return self.answer()
        except (OSError, NoAnswer):
            # The server closed without an answer: it has handed nothing out.
            return None
        finally:
            self.abort()
        return None

    def call(self, request: Request, waker: Waker, is_wanted: Callable[[], bool]) -> Answer | None:
        """The whole call. Where `is_wanted` turns false it is withdrawn; None where no answer was on its way."""
        self.begin(request)
        while not self.is_ready(min(1.0, max(0.0, self.deadline - time.monotonic())), waker):
            waker.drain()
            if not is_wanted():
                return self.withdraw(WITHDRAW_SECONDS, waker)
            if time.monotonic() >= self.deadline:
                self.abort()
                raise NoAnswer("no answer came in time", sent=True)
        return self.answer()
