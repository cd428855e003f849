"""Output of a running job: words are gathered and sent in order, each part once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

from ..errors import InDoubt, Refused
from .held_job import HeldJob
from .job_api import JobApi

log = logging.getLogger("outlast")

GATHER_BYTES = 4 * 1024
GATHER_SECONDS = 0.25
# The server's limit for one call.
PART_BYTES_MAX = 16 * 1024


class Output:
    def __init__(self, held: HeldJob, api: JobApi) -> None:
        self._held = held
        self._api = api
        # Guards the gathered words; never held during a call.
        self._lock = threading.Lock()
        # Held while a part is sent, so that parts keep their order.
        self._sending = threading.Lock()
        self._words: list[str] = []
        self._bytes = 0
        self._part = 0
        self._is_full = False
        self.due_at: float | None = None

    def write(self, text: str) -> None:
        """Adds words; sends them where they are enough for a part."""
        if not text or self._is_full:
            return
        with self._lock:
            self._words.append(text)
            self._bytes += len(text.encode())
            if self.due_at is None:
                self.due_at = time.monotonic() + GATHER_SECONDS
            is_enough = self._bytes >= GATHER_BYTES
        if is_enough:
            self.flush()

    def flush(self) -> None:
        """Sends the words that were gathered so far."""
        with self._sending:
            with self._lock:
                text = "".join(self._words)
                self._words, self._bytes, self.due_at = [], 0, None
            for piece in _pieces(text):
                if not self._is_full:
                    self._send(piece)

    def _send(self, text: str) -> None:
        self._part += 1
        try:
            self._api.put_output(text, self._part)
        except InDoubt:
            # A server that does not know `part` cannot tell a repeat from more text.
            log.warning("job %s: output may be missing; its answer was lost", self._held.id)
        except Refused as refused:
            if refused.code != "output_full":
                raise
            log.warning("job %s: the output is full; further output is dropped", self._held.id)
            self._is_full = True


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces within the limit of one call, cut between characters."""
    data = text.encode()
    while data:
        piece = data[:PART_BYTES_MAX].decode("utf-8", "ignore")
        yield piece
        data = data[len(piece.encode()) :]


class OutputFlusher:
    """One thread for all jobs of a process: sends words that have waited for 250 ms."""

    def __init__(self) -> None:
        self._outputs: set[Output] = set()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, output: Output) -> None:
        with self._lock:
            self._outputs.add(output)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="outlast-output", daemon=True)
                self._thread.start()
        self._wake.set()

    def remove(self, output: Output) -> None:
        with self._lock:
            self._outputs.discard(output)

    def _run(self) -> None:
        while True:
            with self._lock:
                outputs = list(self._outputs)
            if not outputs:
                self._wake.wait()
                self._wake.clear()
                continue
            now = time.monotonic()
            for output in outputs:
                if output.due_at is not None and output.due_at <= now:
                    try:
                        output.flush()
                    except Exception as error:
                        # A lost lease; the handler sees it at its next call.
                        log.debug("output was not sent: %s", error)
            time.sleep(GATHER_SECONDS / 5)
