"""Waiting for the end of a job, and its result."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..errors import InDoubt, JobCancelled, JobExpired, JobFailed, Refused, ResultIsFile, Unavailable, WaitTimeout
from .calls import fetch, get, post, segment
from .download import link_of
from .retry import Tries, exchange
from .sse import follow
from .steps import Emit, NoAnswer, Plan

# The longest wait that the server accepts is 30 s.
WAIT_MAX = 30.0
# The server's limit of inline results; larger uploads are files.
INLINE_BYTES_MAX = 256 * 1024
ENDED = frozenset({"succeeded", "failed", "cancelled", "expired"})


def ended(job_id: str, version: int, timeout: float | None) -> Plan[dict[str, Any]]:
    """The job once it has ended. Reconnects until the timeout, whatever happens to the server meanwhile."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = WAIT_MAX if deadline is None else deadline - time.monotonic()
        wait = round(max(0.0, min(WAIT_MAX, left)), 3)
        request = get(f"/v1/jobs/{segment(job_id)}", {"wait": wait, "version": version}, wait=wait)
        try:
            answer = yield from exchange(request, Tries(go_on=lambda: _is_open(deadline)))
        except Refused as refused:
            if refused.code == "job_expired":
                raise JobExpired(f"job {job_id} has expired: its result was deleted") from refused
            if isinstance(refused, Unavailable) and not _is_open(deadline):
                raise _timeout(job_id, timeout) from refused
            raise
        except InDoubt as doubt:
            raise _timeout(job_id, timeout) from doubt
        job: dict[str, Any] = answer.json()
        if job["status"] in ENDED:
            return job
        version = job["version"]
        if not _is_open(deadline):
            raise _timeout(job_id, timeout)


def result(job: dict[str, Any], retries: int) -> Plan[Any]:
    """The result of a job that has ended; raises for every end but success."""
    job_id, status = job["id"], job["status"]
    if status == "failed":
        error = job.get("error") or {}
        message = error.get("message") or job.get("lastError") or "no reason was given"
        raise JobFailed(f"job {job_id} failed ({error.get('reason')}): {message}", job, error.get("reason"))
    if status == "cancelled":
        raise JobCancelled(f"job {job_id} was cancelled ({job.get('cancelReason')})", job, job.get("cancelReason"))
    if status == "expired":
        raise JobExpired(f"job {job_id} has expired: its result was deleted", job)
    meta = job.get("resultMeta")
    if not job.get("resultUrl") or meta is None:
        return None
    content_type = str(meta.get("contentType") or "").split(";")[0].strip()
    if content_type != "application/json" or meta["length"] > INLINE_BYTES_MAX:
        raise ResultIsFile(f"the result of job {job_id} is {meta['length']} bytes of {content_type}; use job.download(path)")
    answer = yield from exchange(get(f"/v1/jobs/{segment(job_id)}/result"), Tries(retries + 1))
    if answer.status == 307:
        answer = yield from exchange(link_of(answer), Tries(retries + 1))
    return answer.json()


def ended_with_progress(job_id: str, timeout: float | None, report: Callable[[dict[str, Any]], None]) -> Plan[dict[str, Any]]:
    """As `ended`, over the stream, which has the progress."""

    def take(event: dict[str, Any]) -> None:
        if event["type"] == "progress":
            report(event)

    yield from tap(follow(job_id, 0, timeout), take)
    return (yield from ended(job_id, 0, WAIT_MAX))


def wait_many(versions: dict[str, int], wait: float, retries: int) -> Plan[list[dict[str, Any]]]:
    """Those of up to 1,000 jobs that are above the given versions, once there is one, or none after the wait."""
    jobs = [{"id": job_id, "version": version} for job_id, version in versions.items()]
    request = post("/v1/jobs/wait", {"jobs": jobs, "wait": wait}, repeatable=True)
    request.wait = wait
    answer = yield from fetch(request, retries)
    changed: list[dict[str, Any]] = answer["jobs"]
    return changed


def tap(plan: Plan[None], take: Callable[[Any], None]) -> Plan[None]:
    """Runs a plan that emits, giving what it emits to `take` instead of to the caller."""
    try:
        step = next(plan)
        while True:
            if isinstance(step, Emit):
                take(step.value)
                step = plan.send(None)
                continue
            try:
                reply = yield step
            except NoAnswer as failure:
                step = plan.throw(failure)
            else:
                step = plan.send(reply)
    except StopIteration:
        return


def _is_open(deadline: float | None) -> bool:
    return deadline is None or time.monotonic() < deadline


def _timeout(job_id: str, timeout: float | None) -> WaitTimeout:
    return WaitTimeout(f"job {job_id} has not ended within {timeout} s; it goes on")
