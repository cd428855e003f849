"""The handler of deliveries: checks the signature, runs the same handlers as a worker, and answers.

Work that ends in time on a standard queue is answered with its result. All other work is answered with 202 and goes on,
with a keeper for its lease and an outcome by call.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from ..errors import BadSignature, OutlastError
from ..schema import dumps, loads
from ..sync import Outlast
from ..transport import HttpTransport
from ..worker.execute import INLINE_BYTES_MAX, Handler, execute
from ..worker.group import LoopRunner
from ..worker.handout import Handout
from ..worker.held_job import HeldJob
from ..worker.job_api import HttpJobApi
from ..worker.keeper import Keeper
from ..worker.outcome import DeferOn, Outcome
from ..worker.reporter import Reporter
from .signature import verify

log = logging.getLogger("outlast")

ANSWER_SECONDS_MAX = 10.0
# The default `webhookTimeout` of a queue, for servers that do not send it.
WEBHOOK_TIMEOUT = 15.0
# So many acked jobs are remembered, and so many bytes of their results, to answer a redelivery whose first answer was lost.
REMEMBERED_MAX = 10_000
REMEMBERED_BYTES_MAX = 64 * 1024 * 1024
# The keeper waits until the server has the 202; only then the lease is the one for late outcomes.
FIRST_BEAT_SECONDS = 2.0


@dataclass(frozen=True)
class WebhookAnswer:
    """The answer to a delivery, for any framework."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class _Work:
    """A delivery that is being worked on."""

    held: HeldJob
    future: Future[Outcome | None]
    lock: threading.Lock = field(default_factory=threading.Lock)
    # The first answer was 202: the outcome is reported by a call.
    is_detached: bool = False


class Webhook:
    """Made by `webhook()`. Adapters call `handle` or `handle_async` with the raw request."""

    def __init__(self, handler: Handler, secret: str | Iterable[str], outlast: Outlast) -> None:
        self._handler = handler
        self._secrets = [secret] if isinstance(secret, str) else list(secret)
        if not self._secrets or not all(self._secrets):
            raise ValueError("secret is empty; give the signing secret of the queue")
        if not outlast.key:
            raise ValueError("a webhook needs a key for late outcomes: set OUTLAST_KEY or give outlast=Outlast(url, key=…)")
        self._outlast = outlast
        # Reentrant: work that has ended at once calls back while it is being started.
        self._lock = threading.RLock()
        self._running: dict[str, _Work] = {}
        self._acked: OrderedDict[str, Outcome] = OrderedDict()
        self._acked_bytes = 0
        self._transport = HttpTransport(outlast.url, outlast.key, min(outlast.timeout, 10.0))
        self.keeper = Keeper(self._transport)
        self._reporter = Reporter(self._transport, self._reported)
        self._loop: LoopRunner | None = None

    def handle(self, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """Answers one delivery. Blocks until the work has ended, at most for 10 s or two thirds of `webhookTimeout`."""
        started = self._begin(headers, body)
        if isinstance(started, WebhookAnswer):
            return started
        work, limit = started
        try:
            outcome = work.future.result(limit)
        except FutureTimeout:
            return self._detach(work)
        return self._answer(work, outcome)

    async def handle_async(self, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """As `handle`, without blocking the loop."""
        started = self._begin(headers, body)
        if isinstance(started, WebhookAnswer):
            return started
        work, limit = started
        try:
            outcome = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(work.future)), limit)
        except (asyncio.TimeoutError, TimeoutError):
            return self._detach(work)
        return self._answer(work, outcome)

    def close(self, timeout: float = 60.0) -> bool:
        """Waits for running work and its outcomes; false where the time was not enough."""
        until = time.monotonic() + timeout
        with self._lock:
            works = list(self._running.values())
        for work in works:
            try:
                work.future.result(max(0.0, until - time.monotonic()))
            except FutureTimeout:
                return False
        is_empty = self._reporter.flush(max(0.0, until - time.monotonic()))
        self._reporter.stop()
        self.keeper.stop()
        return is_empty

    def _begin(self, headers: Mapping[str, str], body: bytes) -> WebhookAnswer | tuple[_Work, float]:
        """Starts the work of a delivery; an answer where there is nothing to wait for."""
        try:
            verify(self._secrets, headers, body)
        except BadSignature as error:
            return WebhookAnswer(401, dumps({"error": str(error)}), {"content-type": "application/json"})
        delivery = loads(body)
        if "lease" not in delivery:
            return WebhookAnswer(400, dumps({"error": "this is not a delivery; read callbacks with parse_callback"}))
        handout = _handout(delivery)
        identifier = {name.lower(): value for name, value in headers.items()}["webhook-id"]
        with self._lock:
            running = self._running.get(identifier)
            acked = self._acked.get(identifier)
            if running is None and acked is None:
                work = self._start(identifier, handout)
        if running is not None:
            return self._take_over(running, handout)
        if acked is not None:
            return self._repeat(handout, acked)
        if not _may_answer_with_result(handout):
            return self._detach(work)
        return work, min(ANSWER_SECONDS_MAX, (handout.webhook_timeout or WEBHOOK_TIMEOUT) * 2 / 3)

    def _start(self, identifier: str, handout: Handout) -> _Work:
        held = HeldJob(handout)
        future: Future[Outcome | None]
        if self._handler.is_async:
            self._loop = self._loop or LoopRunner(self)
            future = asyncio.run_coroutine_threadsafe(self._run_async(self._loop, held), self._loop.loop)
        else:
            future = Future()
            threading.Thread(target=self._run, args=(held, future), name="outlast-webhook", daemon=True).start()
        work = self._running[identifier] = _Work(held, future)
        future.add_done_callback(lambda _: self._ended(identifier, work))
        return work

    def _run(self, held: HeldJob, future: Future[Outcome | None]) -> None:
        outcome, error = execute(self._handler, held, self.api(held), self.keeper.hurry)
        _log_error(held, error)
        future.set_result(outcome)

    async def _run_async(self, loop: LoopRunner, held: HeldJob) -> Outcome | None:
        outcome, error = await loop.execute(self._handler, held)
        _log_error(held, error)
        return outcome

    def api(self, held: HeldJob) -> HttpJobApi:
        return HttpJobApi(self._outlast.transport, held, INLINE_BYTES_MAX)

    def _ended(self, identifier: str, work: _Work) -> None:
        """The handler has ended. An ack is remembered; after any other end a redelivery works again."""
        outcome = None if work.future.cancelled() else work.future.result()
        with self._lock:
            self._running.pop(identifier, None)
            if outcome is not None and outcome.kind == "ack":
                self._remember(identifier, outcome)
        with work.lock:
            work.held.conclude()
            if work.is_detached:
                self._report(work.held, outcome)

    def _remember(self, identifier: str, outcome: Outcome) -> None:
        self._acked[identifier] = outcome
        self._acked_bytes += len(outcome.result or b"")
        while len(self._acked) > REMEMBERED_MAX or self._acked_bytes > REMEMBERED_BYTES_MAX:
            _, forgotten = self._acked.popitem(last=False)
            self._acked_bytes -= len(forgotten.result or b"")

    def _detach(self, work: _Work) -> WebhookAnswer:
        """Answers 202: from here on the lease is kept, and the outcome goes by a call."""
        with work.lock:
            if not work.is_detached:
                work.is_detached = True
                if work.held.is_concluded:
                    self._report(work.held, work.future.result())
                else:
                    work.held.hold_beats_back(FIRST_BEAT_SECONDS)
                    self.keeper.add(work.held)
        return WebhookAnswer(202)

    def _take_over(self, work: _Work, handout: Handout) -> WebhookAnswer:
        """A redelivery of running work brings a new lease for it."""
        work.held.hand_over(handout)
        return self._detach(work)

    def _repeat(self, handout: Handout, outcome: Outcome) -> WebhookAnswer:
        """A redelivery of finished work: the server did not get the first outcome."""
        if _may_answer_with_result(handout):
            return _success(outcome)
        held = HeldJob(handout)
        held.conclude()
        self._report(held, outcome)
        return WebhookAnswer(202)

    def _report(self, held: HeldJob, outcome: Outcome | None) -> None:
        if outcome is None:
            self.keeper.remove(held)
            log.warning("job %s: nothing is reported (%s)", held.id, held.stop_reason or "lost")
            return
        self.keeper.add(held)
        self._reporter.report(held, outcome)

    def _reported(self, held: HeldJob, _outcome: Outcome, _result: dict[str, Any]) -> None:
        self.keeper.remove(held)

    def _answer(self, work: _Work, outcome: Outcome | None) -> WebhookAnswer:
        """The outcome as the answer to the delivery. One that was handed over is reported by a call instead."""
        with work.lock:
            if work.is_detached:
                return WebhookAnswer(202)
        if outcome is None:
            return WebhookAnswer(202)
        if outcome.kind == "ack":
            if work.held.usage or work.held.has_upload:
                # An answer has room for a JSON result only.
                return self._detach(work)
            return _success(outcome)
        reason = dumps({"error": outcome.fields.get("reason", outcome.kind)})
        headers = {"content-type": "application/json"}
        if outcome.kind == "nack":
            if outcome.fields.get("retryable") is False:
                headers["x-outlast-retry"] = "false"
            return WebhookAnswer(500, reason, headers)
        if outcome.kind == "defer":
            if "retryAfter" in outcome.fields:
                headers["retry-after"] = str(max(0, round(outcome.fields["retryAfter"])))
            return WebhookAnswer(429, reason, headers)
        return self._detach(work)


def _success(outcome: Outcome) -> WebhookAnswer:
    if outcome.result is None:
        return WebhookAnswer(200)
    return WebhookAnswer(200, outcome.result, {"content-type": "application/json"})


def _may_answer_with_result(handout: Handout) -> bool:
    """Only on a standard queue. A server that does not send `mode` gets 202, which is right in both modes."""
    return handout.mode == "standard"


def _handout(delivery: Mapping[str, Any]) -> Handout:
    return Handout.parse(delivery, delivery["queue"], datetime.now(timezone.utc))


def _log_error(held: HeldJob, error: BaseException | None) -> None:
    if error is not None:
        log.info("job %s: the handler raised %s: %s", held.id, type(error).__name__, error)


def webhook(
    handler: Callable[..., Any] | None = None,
    *,
    secret: str | Iterable[str],
    outlast: Outlast | None = None,
    payload: Any = None,
    defer_on: DeferOn | None = None,
) -> Any:
    """A webhook of a handler; also a decorator: `@webhook(secret=…)`. Give it to an adapter, such as `fastapi_router`."""

    def make(function: Callable[..., Any]) -> Webhook:
        return Webhook(Handler.of(function, payload, defer_on), secret, outlast or Outlast())

    return make if handler is None else make(handler)


def parse_callback(secret: str | Iterable[str], headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """The verified body of a callback: `id`, `queue`, `status`, `replays`, `result` or `resultUrl`, `error`, `finishedAt`."""
    verify(secret, headers, body)
    callback = loads(body)
    if not isinstance(callback, dict) or "status" not in callback or "lease" in callback:
        raise OutlastError("this is not a callback; deliveries are for webhook()")
    return callback
