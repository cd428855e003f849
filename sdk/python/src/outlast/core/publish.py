"""Publishing: options, idempotency keys made once per call, and answers to lost first tries."""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypedDict, Union

from ..durations import Duration, duration, format_time, parse_time
from ..schema import dumps
from ..tracing import outgoing_traceparent
from .calls import post, segment
from .problems import refusal_of
from .retry import Tries, exchange
from .steps import Answer, Plan


class PublishOptions(TypedDict, total=False):
    """Options of a publish; docs/reference/PROTOCOL.md has their ranges."""

    idempotency_key: Union[str, bool, None]
    key: str
    tags: Mapping[str, str]
    priority: int
    delay: Duration
    run_at: Union[datetime, str]
    start_by: Union[datetime, str]
    max_attempts: int
    visibility_timeout: Duration
    heartbeat_timeout: Duration
    soft_time_limit: Duration
    hard_time_limit: Duration
    job_timeout: Duration
    max_deferrals: int
    max_age: Duration
    result_ttl: Duration
    ack_timeout: Duration
    callback_url: str


_TIMES = {"run_at": "runAt", "start_by": "startBy"}
_DURATIONS = {
    "delay": "delay",
    "visibility_timeout": "visibilityTimeout",
    "heartbeat_timeout": "heartbeatTimeout",
    "soft_time_limit": "softTimeLimit",
    "hard_time_limit": "hardTimeLimit",
    "job_timeout": "jobTimeout",
    "max_age": "maxAge",
    "result_ttl": "resultTtl",
    "ack_timeout": "ackTimeout",
}
_PLAIN = {
    "key": "key",
    "tags": "tags",
    "priority": "priority",
    "max_attempts": "maxAttempts",
    "max_deferrals": "maxDeferrals",
    "callback_url": "callbackUrl",
}
# The server's `Date` has whole seconds.
_DATE_STEP_SECONDS = 1.0


@dataclass(frozen=True)
class Item:
    """A payload with options, for `publish_many`."""

    payload: Any
    options: Mapping[str, Any] = field(default_factory=dict)


def new_job(payload: Any, options: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The body of a publish, and whether its idempotency key was made here. `idempotency_key=False` leaves the key out."""
    job: dict[str, Any] = {"payload": payload}
    given = options.get("idempotency_key")
    is_made = given is None or given is True
    if is_made:
        job["idempotencyKey"] = str(uuid.uuid4())
    elif given is not False:
        job["idempotencyKey"] = given
    for name, value in options.items():
        if value is None or name == "idempotency_key":
            continue
        if name in _DURATIONS:
            job[_DURATIONS[name]] = duration(value)
        elif name in _TIMES:
            job[_TIMES[name]] = format_time(value)
        elif name in _PLAIN:
            job[_PLAIN[name]] = value
        else:
            known = ", ".join(sorted([*_DURATIONS, *_TIMES, *_PLAIN, "idempotency_key"]))
            raise TypeError(f"{name} is not an option of publish; there are {known}")
    return job, is_made


def publish(queue: str, payload: Any, options: Mapping[str, Any], retries: int) -> Plan[dict[str, Any]]:
    """Publishes one job. Repeated after a lost answer only with an idempotency key."""
    job, is_made = new_job(payload, options)
    trace = outgoing_traceparent()
    request = post(
        f"/v1/queues/{segment(queue)}/jobs",
        job,
        repeatable="idempotencyKey" in job,
        headers={"traceparent": trace} if trace else None,
    )
    tries, started = Tries(retries + 1), time.monotonic()
    answer = yield from exchange(request, tries)
    published: dict[str, Any] = answer.json()
    if tries.in_doubt:
        _forget_own_duplicate(published, answer, started, is_made)
    _warn_of_dedupe_by_payload(queue, published, is_made)
    return published


def publish_batch(queue: str, jobs: Sequence[bytes], made: Sequence[bool], *, keyed: bool, retries: int) -> Plan[list[Any]]:
    """Publishes encoded jobs in one request; the answers are dicts or `Refused`, in order."""
    body = b'{"jobs":[' + b",".join(jobs) + b"]}"
    tries, started = Tries(retries + 1), time.monotonic()
    answer = yield from exchange(post(f"/v1/queues/{segment(queue)}/jobs/batch", body, repeatable=keyed), tries)
    answers: list[Any] = []
    for is_made, entry in zip(made, answer.json()["jobs"]):
        if "error" in entry:
            answers.append(refusal_of(entry["error"], answer.status))
            continue
        entry.setdefault("queue", queue)
        if tries.in_doubt:
            _forget_own_duplicate(entry, answer, started, is_made)
        _warn_of_dedupe_by_payload(queue, entry, is_made)
        answers.append(entry)
    return answers


def encode_job(item: Any) -> tuple[bytes, bool, bool]:
    """One entry of a batch: its JSON, whether its key was made here, and whether it has one."""
    entry = item if isinstance(item, Item) else Item(item)
    job, is_made = new_job(entry.payload, entry.options)
    return dumps(job), is_made, "idempotencyKey" in job


def _forget_own_duplicate(published: dict[str, Any], answer: Answer, started: float, is_made: bool) -> None:
    """Clears `duplicate` where the job was made by an earlier try of this call: by its key, or by its time of creation."""
    if not published.get("duplicate") or published.get("payloadMismatch"):
        return
    if is_made:
        published["duplicate"] = False
        return
    date, created = answer.headers.get("date"), published.get("createdAt")
    if not date or not created:
        return
    # Both times are the server's, so the clock of this machine does not matter.
    first_try = parsedate_to_datetime(date).timestamp() - (time.monotonic() - started) - _DATE_STEP_SECONDS
    if parse_time(created).timestamp() >= first_try:
        published["duplicate"] = False


_warned_queues: set[str] = set()


def _warn_of_dedupe_by_payload(queue: str, published: Mapping[str, Any], is_made: bool) -> None:
    """A random key defeats `dedupeBy: "payload"`; the user is warned once per queue."""
    if published.get("dedupeBy") != "payload" or not is_made or queue in _warned_queues:
        return
    _warned_queues.add(queue)
    warnings.warn(
        f'queue "{queue}" has dedupeBy "payload", which counts only without a key: publish with idempotency_key=False',
        stacklevel=6,
    )
