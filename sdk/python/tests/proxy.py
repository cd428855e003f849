"""A proxy in front of the real server that records requests and breaks connections on purpose."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Recorded:
    """A request as the proxy saw it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


@dataclass
class Fault:
    """How the proxy breaks one exchange. `cut_raw` counts bytes of the whole answer, `cut` those of its body."""

    answer: dict[str, Any] | None = None
    drop: str | None = None
    cut: int | None = None
    cut_raw: int | None = None


@dataclass
class Proxy:
    """Listens on a free port. `choose` is asked for each request and gives a fault or None."""

    upstream: str
    choose: Callable[[Recorded], Fault | None] = lambda _: None
    requests: list[Recorded] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # A thread that waits in `accept` keeps a closed listener open; the shutdown ends its wait.
        _shut(self._listener)
        self.cut_all()

    def cut_all(self) -> None:
        """Breaks every open connection."""
        with self._lock:
            connections, self._open = list(self._open), set()
        for connection in connections:
            _shut(connection)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            request = _read_request(client)
            if request is not None:
                self._exchange(client, *request)
        except OSError:
            pass
        finally:
            with self._lock:
                self._open.discard(client)
            _shut(client)

    def _exchange(self, client: socket.socket, recorded: Recorded, raw: bytes) -> None:
        with self._lock:
            self.requests.append(recorded)
            fault = self.choose(recorded) or Fault()
        if fault.drop == "request":
            return
        if fault.answer is not None:
            client.sendall(_encode(fault.answer))
            return
        parts = urlsplit(self.upstream)
        with socket.create_connection((parts.hostname, parts.port), timeout=120) as server:
            with self._lock:
                self._open.add(server)
            try:
                server.sendall(raw)
                self._pass_on(client, server, fault)
            finally:
                with self._lock:
                    self._open.discard(server)

    def _pass_on(self, client: socket.socket, server: socket.socket, fault: Fault) -> None:
        """Passes the answer on, up to the byte where the fault cuts it. The server is read to its end all the same."""
        left = 0 if fault.drop == "answer" else fault.cut_raw
        head = b""
        while fault.cut is not None and b"\r\n\r\n" not in head:
            chunk = server.recv(1)
            if not chunk:
                return
            head += chunk
        if fault.cut is not None:
            client.sendall(head)
            left = fault.cut
        while True:
            chunk = server.recv(65536)
            if not chunk:
                return
            if left is None:
                client.sendall(chunk)
                continue
            client.sendall(chunk[:left])
            left -= min(left, len(chunk))
            if left == 0:
                return


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _read_request(client: socket.socket) -> tuple[Recorded, bytes] | None:
    """One request, and the bytes for the server, which is asked to close after its answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = client.recv(65536)
        if not chunk:
            return None
        data += chunk
    head, body = data.split(b"\r\n\r\n", 1)
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.strip().lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
    raw_body = _read_body(client, headers, body)
    kept = [line for line in lines if line.split(":", 1)[0].lower() != "connection"]
    raw = "\r\n".join([first, *kept, "connection: close", "", ""]).encode("latin-1") + raw_body
    return Recorded(method, urlsplit(target).path, headers, raw_body), raw


def _read_body(client: socket.socket, headers: dict[str, str], body: bytes) -> bytes:
    if headers.get("transfer-encoding") == "chunked":
        while not body.endswith(b"0\r\n\r\n"):
            body += client.recv(65536)
        return body
    length = int(headers.get("content-length", "0"))
    while len(body) < length:
        chunk = client.recv(65536)
        if not chunk:
            break
        body += chunk
    return body


def _encode(answer: dict[str, Any]) -> bytes:
    body = answer.get("body", "")
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    headers = {"content-length": str(len(data)), "connection": "close", **answer.get("headers", {})}
    if not isinstance(body, str):
        headers.setdefault("content-type", "application/problem+json")
    lines = [f"HTTP/1.1 {answer['status']} Answer", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + data
