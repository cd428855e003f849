"""Starts the real server for tests: the binary of OUTLAST_BIN or of the PATH, a folder of its own, a free port."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from ..errors import OutlastError

START_SECONDS = 60.0
STOP_SECONDS = 20.0


class Server:
    """A running server: `url`, `key`, `stop()`. It may also be used with `with`."""

    def __init__(self, binary: str, *, clock: str | None = None, folder: Path | None = None) -> None:
        self._binary = binary
        self._clock = clock
        self._owns_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="outlast-test-"))
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"
        self.start()
        self.key = (self.folder / "admin.key").read_text().strip()

    def start(self) -> None:
        """Starts the server, again after `kill()` or `halt()`, on the same port and data."""
        command = [self._binary, "dev", "--data", str(self.folder), "--listen", f"127.0.0.1:{self._port}"]
        if self._clock is not None:
            command += ["--clock", self._clock]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
        self._wait_ready()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise OutlastError("the server is not running")
        return self._process.pid

    def kill(self) -> None:
        """Kills the server as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def halt(self) -> None:
        """Stops the server and keeps its data."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def stop(self) -> None:
        """Stops the server and deletes its folder."""
        self.kill()
        if self._owns_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def advance(self, seconds: float) -> None:
        """Moves the clock of a server that was started with `clock="manual"`."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
            connection.request("POST", "/v1/dev/clock", json.dumps({"advance": seconds}), headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise OutlastError(f"the clock was not moved: {answer.status} {answer.read().decode()}")
        finally:
            connection.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _wait_ready(self) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if self._process is None or self._process.poll() is not None:
                raise OutlastError(f"the server ended at once:\n{self._log_end()}")
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
            try:
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                time.sleep(0.02)
            finally:
                connection.close()
        raise OutlastError(f"the server is not ready after {START_SECONDS} s:\n{self._log_end()}")

    def _log_end(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")[-2000:]


def start_outlast(*, clock: str | None = None, folder: Path | None = None) -> Server:
    """A server for tests; stop it with `stop()`. `clock="manual"` lets `advance()` move its time."""
    binary = os.environ.get("OUTLAST_BIN") or shutil.which("outlast")
    if binary is None:
        raise OutlastError("no outlast binary: set OUTLAST_BIN or put outlast on the PATH")
    return Server(binary, clock=clock, folder=folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
