"""The keeper: a thread that renews the leases of all held jobs in one call, whatever their handlers do.

It has connections of its own. Where the server knows `wait`, the call stays open, so that a cancel arrives in milliseconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from ..core.calls import post
from ..core.problems import problem, retry_after
from ..core.steps import Answer, NoAnswer, Request
from ..transport import HttpTransport
from .handout import remaining, server_time
from .held_job import HeldJob
from .pending_call import PendingCall, Waker

log = logging.getLogger("outlast")

ENTRIES_MAX = 1000
WAIT_MAX = 20.0
# The least time between two calls; with the age at which a job joins it bounds how late a cancel of a young job arrives.
SPACING = 0.4
PROGRESS_INTERVAL = 1.0
TICK = 0.2
GONE = frozenset({"lease_lost", "job_not_found", "not_running"})


# A job in a call, its lease at that time, and the progress that went with it.
Opened = tuple[HeldJob, str, "dict[str, Any] | None"]


class Keeper:
    def __init__(self, transport: HttpTransport) -> None:
        self._transport = transport
        self._held: dict[str, HeldJob] = {}
        self._lock = threading.Lock()
        self._waker = Waker()
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._is_idle = False
        self._pending = PendingCall(transport)
        self._open: list[Opened] | None = None
        self._begun_at = 0.0
        self._not_before = 0.0
        self._progress_at = 0.0
        self._may_wait = True
        # Given by the worker where handlers share a loop: false while the loop has been blocked for too long.
        self.is_loop_alive: Callable[[HeldJob], bool] = lambda _: True

    def add(self, held: HeldJob) -> None:
        with self._lock:
            self._held[held.id] = held
            if self._thread is None and not self._is_stopping:
                self._thread = threading.Thread(target=self._run, name="outlast-keeper", daemon=True)
                self._thread.start()
        if self._is_idle:
            self._waker.wake()

    def remove(self, held: HeldJob) -> None:
        with self._lock:
            if self._held.get(held.id) is held:
                del self._held[held.id]

    def hurry(self) -> None:
        """Progress was set: send it soon."""
        if time.monotonic() >= self._progress_at:
            self._waker.wake()

    def held_jobs(self) -> list[HeldJob]:
        with self._lock:
            return list(self._held.values())

    def stop(self) -> None:
        with self._lock:
            self._is_stopping = True
            thread = self._thread
        self._waker.wake()
        if thread is not None:
            thread.join(5)

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                self._step()
            except Exception:
                log.exception("keeper failed; trying again in 1 s")
                self._drop_open()
                time.sleep(1)
        self._drop_open()

    def _step(self) -> None:
        held = self.held_jobs()
        if not held:
            self._drop_open()
            self._is_idle = True
            # A job may have been added before the flag was set.
            self._waker.wait(0 if self.held_jobs() else 30.0)
            self._is_idle = False
            return
        now = time.monotonic()
        self._check_limits(held, now)
        if self._must_beat(held, now):
            self._drop_open()
            self._begin(held, now)
        if now >= self._progress_at:
            self._send_progress(held, now)
        if self._open is None:
            self._waker.wait(TICK)
            return
        if self._pending.is_ready(TICK, self._waker):
            self._finish()
        elif time.monotonic() >= self._pending.deadline:
            self._drop_open()
        self._waker.drain()

    def _check_limits(self, held: list[HeldJob], now: float) -> None:
        for job in held:
            age = now - job.taken_at
            if job.handout.hard_time_limit is not None and age >= job.handout.hard_time_limit:
                job.stop("hard limit")
            if job.handout.soft_time_limit is not None and age >= job.handout.soft_time_limit:
                job.soft_limit.set()

    def _must_beat(self, held: list[HeldJob], now: float) -> bool:
        if now < self._not_before:
            return False
        if self._open is None and any(job.next_beat_at <= now for job in held):
            return True
        if not self._uses_wait():
            return False
        if now - self._begun_at < SPACING:
            return False
        covered = {job.id for job, _, _ in self._open or ()}
        return any(job.id not in covered and job.joins_at <= now and not job.is_concluded for job in held)

    def _uses_wait(self) -> bool:
        return self._may_wait and self._transport.server_version is not None

    def _begin(self, held: list[HeldJob], now: float) -> None:
        """Sends a heartbeat for every job, or for the 1,000 most urgent."""
        alive = [job for job in held if self._is_kept(job)]
        if not alive:
            self._not_before = now + 1.0
            return
        urgent = sorted(alive, key=lambda job: job.next_beat_at)[:ENTRIES_MAX]
        wait = self._wait_of(urgent)
        entries: list[dict[str, Any]] = []
        opened: list[Opened] = []
        for job in urgent:
            entry: dict[str, Any] = {"id": job.id, "lease": job.lease}
            progress = job.take_progress()
            if progress is not None:
                entry["progress"] = progress
            if wait:
                entry["seen"] = sorted(job.directives)
            entries.append(entry)
            opened.append((job, job.lease, progress))
        body: dict[str, Any] = {"heartbeats": entries}
        if wait:
            body["wait"] = wait
        self._open, self._begun_at = opened, now
        try:
            self._pending.begin(_request(body, wait))
        except NoAnswer as failure:
            log.warning("heartbeat failed; trying again: %s", failure)
            self._drop_open()
            self._not_before = now + min(1.0, *(job.beat_interval / 2 for job in urgent))

    def _is_kept(self, job: HeldJob) -> bool:
        return job.stop_reason not in ("lost", "hard limit") and self.is_loop_alive(job)

    def _wait_of(self, jobs: list[HeldJob]) -> float:
        """How long the call may stay open: until the first lease must be renewed. Not with more jobs than one call takes."""
        if not self._uses_wait() or len(jobs) >= ENTRIES_MAX:
            return 0.0
        return round(max(0.1, min(WAIT_MAX, *(job.beat_interval for job in jobs))), 3)

    def _finish(self) -> None:
        opened, self._open = self._open or [], None
        try:
            answer = self._pending.answer()
        except NoAnswer as failure:
            log.warning("heartbeat was not answered; trying again: %s", failure)
            self._put_back(opened)
            self._not_before = time.monotonic() + 0.2
            return
        if answer.status != 200:
            self._refused(answer)
            self._put_back(opened)
            return
        now, date = time.monotonic(), server_time(answer.headers)
        for (job, lease, _), result in zip(opened, answer.json()["results"]):
            if result.get("accepted"):
                left = remaining(result["leaseExpiresAt"], date)
                job.renew(left + (now - self._begun_at), self._begun_at)
                if result.get("softLimitReached"):
                    job.soft_limit.set()
                job.take_directives(frozenset(result.get("directives") or ()))
            elif job.lease == lease:
                self._lost(job, result.get("error") or {})

    def _lost(self, job: HeldJob, error: dict[str, Any]) -> None:
        """An entry was refused. A job whose outcome is on its way may just have ended: its report decides."""
        if error.get("code") not in GONE:
            log.warning("heartbeat of job %s refused: %s", job.id, error.get("detail"))
            job.next_beat_at = time.monotonic() + 1.0
            return
        if not job.is_concluded:
            log.warning("job %s: the lease is lost; its work is discarded", job.id)
            job.stop("lost")
        self.remove(job)

    def _refused(self, answer: Answer) -> None:
        code = problem(answer).get("code")
        if code == "invalid_request" and self._uses_wait():
            log.warning("the server does not take `wait` in heartbeats; cancels arrive with the next heartbeat")
            self._may_wait = False
            return
        log.error("heartbeats refused (%s, %s); trying again", answer.status, code)
        self._not_before = time.monotonic() + min(retry_after(answer.headers) or 1.0, 5.0)

    def _send_progress(self, held: list[HeldJob], now: float) -> None:
        """Sends the latest progress of each job. It may be lost: the next heartbeat or report has a newer one."""
        reports: list[dict[str, Any]] = []
        taken: list[Opened] = []
        for job in held:
            if len(reports) < ENTRIES_MAX and job.has_progress and not job.is_concluded:
                progress = job.take_progress()
                if progress is not None:
                    reports.append({"id": job.id, "lease": job.lease, **progress})
                    taken.append((job, job.lease, progress))
        if not reports:
            return
        self._progress_at = now + PROGRESS_INTERVAL
        try:
            answer = self._transport.send(post("/v1/progress", {"reports": reports}))
        except NoAnswer as failure:
            log.warning("progress was not sent; trying again: %s", failure)
            self._put_back(taken)
            return
        if answer.status != 200:
            log.warning("progress was refused with %s", answer.status)
            return
        for (job, lease, _), result in zip(taken, answer.json()["results"]):
            error = result.get("error")
            if error is None:
                continue
            if error.get("code") in GONE and job.lease == lease:
                self._lost(job, error)
            else:
                log.warning("progress of job %s refused: %s", job.id, error.get("detail"))

    def _put_back(self, opened: list[Opened]) -> None:
        for job, _, progress in opened:
            if progress is not None:
                job.put_back_progress(progress)

    def _drop_open(self) -> None:
        if self._open is not None:
            self._pending.abort()
            self._open = None


def _request(body: dict[str, Any], wait: float) -> Request:
    request = post("/v1/heartbeats", body)
    request.wait = wait
    return request
