"""The reporter: a thread that sends outcomes. Those that come while a report is on its way go together in the next one."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core.calls import post
from ..core.problems import problem, retry_after
from ..core.retry import backoff
from ..core.steps import Answer, NoAnswer
from ..transport import Transport
from .held_job import HeldJob
from .outcome import Outcome, clip

log = logging.getLogger("outlast")

ENTRIES_MAX = 1000
# Half of the server's default limit for a batch.
BYTES_MAX = 4 * 1024 * 1024
TRANSIENT = frozenset({429, 503, 507})
# The body as a whole was refused: too deep, or too large.
UNREADABLE = frozenset({400, 413})


@dataclass
class _Report:
    held: HeldJob
    outcome: Outcome

    def entry(self) -> bytes:
        # Encoded when it is sent: a redelivery may have brought a new lease.
        return self.outcome.entry(self.held.id, self.held.lease)


class Reporter:
    def __init__(self, transport: Transport, on_reported: Callable[[HeldJob, Outcome, dict[str, Any]], None]) -> None:
        self._transport = transport
        self._on_reported = on_reported
        self._queue: queue.SimpleQueue[_Report | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._outstanding = 0
        self._is_empty = threading.Condition(self._lock)
        self._first: _Report | None = None

    def report(self, held: HeldJob, outcome: Outcome) -> None:
        """Takes an outcome; `on_reported` is called with the server's answer to it."""
        with self._lock:
            self._outstanding += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="outlast-reporter", daemon=True)
                self._thread.start()
        self._queue.put(_Report(held, outcome))

    @property
    def outstanding(self) -> int:
        return self._outstanding

    def flush(self, timeout: float) -> bool:
        """Waits until every outcome has its answer."""
        with self._lock:
            return self._is_empty.wait_for(lambda: self._outstanding == 0, timeout)

    def stop(self) -> None:
        self._queue.put(None)

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                return
            try:
                self._send(batch)
            except Exception:
                log.exception("reporting outcomes failed; these jobs come back when their leases end")
                for report in (report for report in batch if not report.held.reported.is_set()):
                    self._done(report, {"error": {"code": "internal", "detail": "the report failed in this process"}})

    def _next_batch(self) -> list[_Report] | None:
        first = self._first or self._queue.get()
        self._first = None
        if first is None:
            return None
        batch, size = [first], len(first.outcome.result or b"")
        while len(batch) < ENTRIES_MAX:
            try:
                report = self._queue.get_nowait()
            except queue.Empty:
                break
            if report is None:
                # The end of the queue is seen again once this batch is sent.
                self._queue.put(None)
                break
            size += len(report.outcome.result or b"")
            if size > BYTES_MAX:
                self._first = report
                break
            batch.append(report)
        return batch

    def _send(self, batch: list[_Report]) -> None:
        """Sends until each entry has a definite answer or its lease has ended. The same outcome twice counts once."""
        tries = 0
        while batch:
            tries += 1
            pause, is_pause_due = backoff(tries), True
            try:
                body = b'{"outcomes":[' + b",".join(report.entry() for report in batch) + b"]}"
                answer = self._transport.send(post("/v1/outcomes", body))
            except NoAnswer as failure:
                log.warning("outcomes were not answered; sending them again: %s", failure)
            else:
                if answer.status == 200:
                    batch = self._settle(batch, answer.json()["results"])
                elif answer.status in UNREADABLE:
                    batch, is_pause_due = self._find_unreadable(batch, answer), False
                else:
                    log.warning("outcomes were refused with %s; sending them again", answer.status)
                    if answer.status in TRANSIENT:
                        after = retry_after(answer.headers)
                        pause = pause if after is None else min(max(after, 0.05), 5.0)
            batch = self._drop_ended(batch)
            if batch and is_pause_due:
                time.sleep(pause)

    def _find_unreadable(self, batch: list[_Report], answer: Answer) -> list[_Report]:
        """One entry makes the server refuse the whole body: halves are sent alone, until the entry is found."""
        if len(batch) == 1:
            return self._settle(batch, [{"error": {**problem(answer), "status": answer.status}}])
        middle = len(batch) // 2
        self._send(batch[:middle])
        return batch[middle:]

    def _settle(self, batch: list[_Report], results: list[dict[str, Any]]) -> list[_Report]:
        """Handles the answer to each entry; gives those that must be sent again."""
        again = []
        for report, result in zip(batch, results):
            error = result.get("error")
            if error is None:
                self._done(report, result)
            elif error.get("status") in TRANSIENT or (error.get("status") == 500 and not error.get("code")):
                again.append(report)
            elif report.outcome.kind == "ack" and error.get("code") in ("invalid_request", "payload_too_large", "result_exists"):
                # The work is done and its result is not acceptable: a second attempt would end in the same way.
                reason = clip(f"the result was refused: {error.get('detail')}")
                log.error("job %s: %s", report.held.id, reason)
                again.append(_Report(report.held, Outcome("nack", {"retryable": False, "reason": reason})))
            elif error.get("code") == "no_cancel_requested":
                again.append(_Report(report.held, Outcome("release")))
            else:
                self._done(report, result)
        return again

    def _drop_ended(self, batch: list[_Report]) -> list[_Report]:
        kept = []
        for report in batch:
            if report.held.may_report():
                kept.append(report)
            else:
                self._done(report, {"error": {"code": "lease_lost", "detail": "the lease ended before the server answered"}})
        return kept

    def _done(self, report: _Report, result: dict[str, Any]) -> None:
        held, error = report.held, result.get("error")
        if error is not None:
            log.warning("job %s: %s was refused (%s): %s", held.id, report.outcome.kind, error.get("code"), error.get("detail"))
        held.reported.set()
        try:
            self._on_reported(held, report.outcome, result)
        finally:
            with self._lock:
                self._outstanding -= 1
                if self._outstanding == 0:
                    self._is_empty.notify_all()
