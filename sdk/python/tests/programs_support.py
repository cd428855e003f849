"""Starts the programs of tests/programs, and waits for conditions."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from outlast.testing import Server

_started: list["subprocess.Popen[bytes]"] = []
PROGRAMS = Path(__file__).parent / "programs"


def start_program(name: str, server: Server, *arguments: object) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "OUTLAST_URL": server.url, "OUTLAST_KEY": server.key}
    started = subprocess.Popen([sys.executable, str(PROGRAMS / name), *map(str, arguments)], env=environment)
    _started.append(started)
    return started


def end_programs() -> None:
    """Kills the programs that a failed test has left, stopped ones too."""
    while _started:
        program = _started.pop()
        if program.poll() is None:
            program.kill()
            program.wait()


def wait_until(condition: Callable[[], Any], limit: float = 60.0) -> Any:
    """The first true value of the condition."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("the condition did not come true in time")
