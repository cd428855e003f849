"""One real server for the session; tests share nothing but it, and use queues of their own."""

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from outlast import Outlast, Worker
from outlast.testing import Server, start_outlast

_numbers = itertools.count(1)
ROOT = Path(__file__).resolve().parents[3]
IS_SOAK = os.environ.get("OUTLAST_SOAK") == "1"


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with start_outlast() as started:
        yield started


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that the test may kill."""
    with start_outlast() as started:
        yield started


@pytest.fixture
def outlast(server: Server) -> Iterator[Outlast]:
    with Outlast(server.url, key=server.key) as client:
        yield client


@pytest.fixture
def new_queue(outlast: Outlast) -> Callable[..., str]:
    """Makes a queue of a fresh name."""

    def make(**settings: Any) -> str:
        name = f"queue-{next(_numbers)}"
        outlast.queues.create(name, **settings)
        return name

    return make


@contextmanager
def running(worker: Worker) -> Iterator[Worker]:
    """Runs a worker in a thread, and stops it at the end."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(60)
    if failure:
        raise failure[0]
