"""`run_job`, `sign_delivery` and the fixture, as a user calls them."""

import asyncio
from typing import Any

import pytest

from outlast import Defer, NotRetryable, Outlast
from outlast.testing import Server, run_job, sign_delivery
from outlast.webhook import verify

NAMES = [f"section-{n:03}" for n in range(1, 162)]


def report(job: Any) -> Any:
    job.output("begin ")
    parts = job.each_section(NAMES, lambda name: {"text": name, "attempt": job.attempt})
    job.usage(tokens=161)
    return {"title": job.payload["title"], "sections": parts}


def test_a_handler_runs_without_a_server() -> None:
    run = run_job(report, {"title": "Tides"})

    assert run.error is None
    assert run.outcome is not None
    assert run.outcome["ack"]["title"] == "Tides"
    assert list(run.sections) == NAMES
    assert run.progress[-1] == {"itemsDone": 161, "itemsTotal": 161}
    assert run.output == "begin "
    assert run.usage == {"tokens": 161}


def test_a_killed_handler_goes_on_where_it_was() -> None:
    first = run_job(report, {"title": "Tides"}, kill_after="section 140")
    second = run_job(report, {"title": "Tides"}, sections=first.sections, attempt=2)

    assert first.outcome is None
    assert list(first.sections) == NAMES[:140]
    assert second.outcome is not None
    attempts = [part["attempt"] for part in second.outcome["ack"]["sections"]]
    assert attempts == [1] * 140 + [2] * 21
    assert [what for kind, what in second.log if kind == "section"] == NAMES[140:]


def test_a_cancel_stops_between_sections() -> None:
    run = run_job(report, {"title": "Tides"}, cancel_after=3)

    assert run.outcome == {"cancelled": True}
    assert list(run.sections) == NAMES[:3]


def test_an_async_handler_is_cancelled() -> None:
    async def handle(job: Any) -> None:
        await job.checkpoint.save({"page": 1})
        await asyncio.sleep(60)

    run = run_job(handle, cancel_after=1)

    assert run.outcome == {"cancelled": True}
    assert run.checkpoint == {"data": {"page": 1}, "schemaVersion": 1}


def test_outcomes_of_raises() -> None:
    def raising(error: BaseException) -> Any:
        def handle(job: Any) -> None:
            raise error

        return handle

    nack = run_job(raising(ValueError("no")))
    assert nack.outcome is not None
    assert nack.outcome["nack"].startswith("ValueError: no (test_testing.py:")
    assert run_job(raising(NotRetryable("gone"))).outcome is not None
    assert "gone" in str(run_job(raising(NotRetryable("gone"))).outcome)
    assert run_job(raising(Defer("5m", scope="queue"))).outcome == {"defer": {"scope": "queue", "retryAfter": 300.0}}


def test_a_checkpoint_is_loaded() -> None:
    def handle(job: Any) -> Any:
        saved = job.checkpoint.load()
        return [saved.data, saved.schema_version]

    assert run_job(handle, checkpoint={"page": 7}, schema_version=2).outcome == {"ack": [{"page": 7}, 2]}


def test_a_signed_delivery_is_genuine() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

    delivery = sign_delivery(secret, {"to": "ada"})

    verify(secret, delivery.headers, delivery.body)


def test_the_fixture_gives_a_real_server(outlast_server: Server) -> None:
    with Outlast(outlast_server.url, key=outlast_server.key) as outlast:
        outlast.queues.create("fixture")

        assert outlast.queues.get("fixture").name == "fixture"


def test_a_wrong_place_to_kill_is_named() -> None:
    with pytest.raises(ValueError, match="section 140"):
        run_job(report, {"title": "x"}, kill_after="chapter 1")
