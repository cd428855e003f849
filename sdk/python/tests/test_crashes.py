"""Workers in processes of their own: killed at 20 places, stopped past their lease, ended under load, blocked interpreters."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import IS_SOAK
from programs_support import end_programs, start_program, wait_until

from outlast import Outlast
from outlast.testing import Server

NewQueue = Callable[..., str]
KILLS = 100 if IS_SOAK else 20


@pytest.fixture(autouse=True)
def no_program_is_left() -> Iterator[None]:
    yield
    end_programs()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_a_worker_killed_at_twenty_places_writes_each_section_once(
    server: Server, outlast: Outlast, new_queue: NewQueue, tmp_path: Path
) -> None:
    """Each section is written once, but for the one in flight at a kill; the job is acked once."""
    queue = new_queue(visibility_timeout=1, max_attempts=20)
    seed = int(os.environ.get("OUTLAST_SEED", str(random.randrange(10**6))))
    print(f"OUTLAST_SEED={seed}")
    chosen = random.Random(seed)
    rounds = KILLS // 10
    for number in range(rounds):
        written = tmp_path / f"written-{number}"
        # Ten kills per job: a job has at most twenty attempts.
        places = sorted(chosen.sample(range(1, 161), 10))
        job = outlast.queue(queue).publish({"title": "Tides"})
        for place in places:
            worker = start_program("sections.py", server, written, queue, 0.004)
            wait_until(lambda place=place, written=written: len(set(lines(written))) >= place)
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        worker = start_program("sections.py", server, written, queue, 0)
        result = job.result(timeout=120)
        worker.send_signal(signal.SIGTERM)

        assert worker.wait(60) == 0
        assert result == {"title": "Tides", "sections": 161}
        names = lines(written)
        assert len(set(names)) == 161
        assert len(names) - 161 <= len(places), "more than the section in flight was written again"
        acked = [event for event in job.events() if event["type"] == "attempt" and event["outcome"] == "acked"]
        assert len(acked) == 1


def test_an_interpreter_blocked_for_three_leases_keeps_its_job(
    server: Server, outlast: Outlast, new_queue: NewQueue, tmp_path: Path
) -> None:
    """The handler holds the interpreter lock in a child process; the keeper in the parent renews the lease."""
    queue, log = new_queue(visibility_timeout=1, max_attempts=5), tmp_path / "log"
    letters = blocking_letters(3.5)
    worker = start_program("busy.py", server, queue, log)

    started = time.monotonic()
    job = outlast.queue(queue).publish({"letters": letters})
    result = job.result(timeout=120)
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(60) == 0
    assert time.monotonic() - started > 3
    assert [line.split()[:2] for line in lines(log)] == [[job.id, "1"]]
    assert result["pid"] != worker.pid


def test_a_hard_limit_kills_the_child_and_a_dead_child_fails_the_attempt(
    server: Server, outlast: Outlast, new_queue: NewQueue, tmp_path: Path
) -> None:
    queue, log = new_queue(visibility_timeout=5, max_attempts=2, backoff={"type": "fixed", "delay": 0}), tmp_path / "log"
    worker = start_program("busy.py", server, queue, log)

    died = outlast.queue(queue).publish({"letters": 2, "exit": True})
    assert died.result(timeout=60)["pid"] != worker.pid
    hung = outlast.queue(queue).publish({"letters": 60}, hard_time_limit=1, max_attempts=1)
    wait_until(lambda: hung.refresh().status == "failed")
    after = outlast.queue(queue).publish({"letters": 2})
    after.result(timeout=60)
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(60) == 0
    assert died.refresh().data["attempt"] == 2
    # The child of the hung job was killed: no process is left that burns the processor.
    pids = {int(line.split()[2]) for line in lines(log) if line.split()[0] == hung.id}
    assert pids
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))


def test_a_worker_stopped_past_its_lease_leaves_no_trace(server: Server, outlast: Outlast, new_queue: NewQueue) -> None:
    """SIGSTOP past the lease: another worker does the job, and the late reports of the first change nothing."""
    queue = new_queue(visibility_timeout=1, max_attempts=5)
    first = start_program("slow.py", server, queue, 1, 5)
    job = outlast.queue(queue).publish({"seconds": 1.5})
    wait_until(lambda: job.refresh().status == "running")
    first.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: job.refresh().data["attempt"] == 2)
        second = start_program("slow.py", server, queue, 1, 5)
        assert job.result(timeout=60) == {"attempt": 2}
        events = list(job.events())
    finally:
        first.send_signal(signal.SIGCONT)
    # The first worker has ended its work once it takes the next job, or ends.
    first.send_signal(signal.SIGTERM)
    second.send_signal(signal.SIGTERM)

    assert first.wait(60) == 0
    assert second.wait(60) == 0
    assert list(job.events()) == events
    assert job.refresh().data["attempt"] == 2


def test_sigterm_under_load_charges_nothing(server: Server, outlast: Outlast, new_queue: NewQueue) -> None:
    """Jobs that end within the grace time are acked, the others are released; no attempt is charged."""
    queue = new_queue(visibility_timeout=60)
    jobs = outlast.queue(queue).publish_many([{"seconds": 0.05 + 0.02 * (n % 5), "checks": n % 2 == 0} for n in range(300)])
    for _ in range(3):
        worker = start_program("slow.py", server, queue, 16, 0.03)
        done = outlast.queues.get(queue).counts["succeeded"]
        wait_until(lambda done=done: outlast.queues.get(queue).counts["succeeded"] >= done + 20)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
        # The server takes a moment to notice that a waiting receive was given up.
        wait_until(lambda: outlast.queues.get(queue).counts["running"] == 0, limit=20)
    worker = start_program("slow.py", server, queue, 16, 5)
    wait_until(lambda: outlast.queues.get(queue).counts["succeeded"] == 300)
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(60) == 0
    assert {job.refresh().data["attempt"] for job in jobs} == {1}


def test_a_second_signal_releases_now(server: Server, outlast: Outlast, new_queue: NewQueue) -> None:
    queue = new_queue(visibility_timeout=60)
    worker = start_program("slow.py", server, queue, 1, 60)
    job = outlast.queue(queue).publish({"seconds": 60})
    wait_until(lambda: job.refresh().status == "running")

    worker.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(30) == 0
    assert job.refresh().status == "queued"
    assert job.data["attempt"] == 1


def blocking_letters(seconds: float) -> int:
    """How many letters make one match of the regular expression take about so long on this machine."""
    import re

    for letters in range(16, 40):
        started = time.monotonic()
        re.match(r"(a+)+$", "a" * letters + "b")
        taken = time.monotonic() - started
        if taken > 0.05:
            break
    # Each letter doubles the time.
    while taken < seconds:
        letters, taken = letters + 1, taken * 2
    return letters
