"""The rest of the client against the real server: resources, lists, tokens, downloads, typed answers, retries of deletes."""

import asyncio
import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from conftest import running
from programs_support import wait_until
from proxy import Fault, Proxy

from outlast import (
    AsyncOutlast,
    Conflict,
    DownloadDamaged,
    InvalidRequest,
    Job,
    JobExpired,
    NotFound,
    Outlast,
    Record,
    Unauthorized,
    Worker,
    item,
)
from outlast.testing import Server

NewQueue = Callable[..., str]


def test_queues_are_made_changed_and_deleted(outlast: Outlast, new_queue: NewQueue) -> None:
    name = new_queue(visibility_timeout=timedelta(minutes=2), max_attempts=3)

    queue = outlast.queues.get(name)
    changed = outlast.queues.update(name, if_match=queue.version, concurrency=4)

    assert (queue.visibility_timeout, queue.max_attempts) == (120, 3)
    assert changed.concurrency == 4
    with pytest.raises(Conflict) as taken:
        outlast.queues.create(name)
    assert (taken.value.code, taken.value.status) == ("queue_exists", 409)
    with pytest.raises(Conflict):
        outlast.queues.update(name, if_match=1, concurrency=5)
    assert outlast.queues.pause(name).paused is True
    assert outlast.queues.resume(name).paused is False
    assert outlast.queues.put(name, max_attempts=9).visibility_timeout == 30
    assert name in {queue.name for queue in outlast.queues.list(limit=1)}
    assert outlast.queues.delete(name) is None
    with pytest.raises(NotFound):
        outlast.queues.get(name)


def test_a_deletion_whose_answer_was_lost_is_not_an_error(server: Server, new_queue: NewQueue) -> None:
    name, faults = new_queue(), iter([Fault(drop="answer")])
    proxy = Proxy(server.url, lambda _: next(faults, None))

    assert Outlast(proxy.url, key=server.key).queues.delete(name) is None
    proxy.close()

    assert len(proxy.requests) == 2


def test_a_wrong_field_is_named(outlast: Outlast) -> None:
    with pytest.raises(InvalidRequest) as refused:
        outlast.queues.create("wrong", max_attempt=3)

    assert refused.value.errors[0]["field"] == "maxAttempt"
    assert "maxAttempts" in str(refused.value)


def test_an_unknown_option_of_publish_is_refused_before_it_is_sent(outlast: Outlast) -> None:
    with pytest.raises(TypeError, match="max_attempts"):
        outlast.queue("any").publish(1, maxAttempts=3)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="time zone"):
        outlast.queue("any").publish(1, run_at=datetime(2030, 1, 1))


def test_options_of_a_publish(outlast: Outlast, new_queue: NewQueue) -> None:
    queue = outlast.queue(new_queue())
    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)

    later = queue.publish(1, run_at=tomorrow, key="acme", tags={"plan": "pro"}, priority=3)
    queue.publish(2, delay=timedelta(hours=1))

    found = list(outlast.jobs.list(queue=queue.name, key="acme", tags={"plan": "pro"}))
    assert [job.id for job in found] == [later.id]
    assert found[0].scheduled_for[:19] == tomorrow.isoformat()[:19]
    assert found[0].pending_reason == "delayed"


def test_lists_have_pages(outlast: Outlast, new_queue: NewQueue) -> None:
    queue = outlast.queue(new_queue())
    ids = [answer.id for answer in queue.publish_many(range(7))]

    listing = outlast.jobs.list(queue=queue.name, limit=3)
    first = listing.page()
    second = listing.page(first.next_cursor)

    assert [job.id for job in listing] == ids[::-1]
    assert [job.id for job in first.items + second.items] == ids[:0:-1]


def test_keys_bind_a_client(outlast: Outlast, new_queue: NewQueue) -> None:
    name = new_queue()
    made = outlast.keys.create("publisher", [f"publish:{name}"], expires_in=3600)

    with Outlast(outlast.url, key=made.key) as bound:
        assert bound.queue(name).publish(1).status == "queued"
        assert outlast.keys.revoke(made.id).revoked_at is not None
        with pytest.raises(Unauthorized):
            bound.queue(name).publish(2)
    assert made.id in {key.id for key in outlast.keys.list()}


def test_dead_letters_and_operations(outlast: Outlast, new_queue: NewQueue) -> None:
    name = new_queue(max_attempts=1)
    worker = Worker(outlast)
    worker.job(name)(lambda job: 1 / 0)
    jobs = outlast.queue(name).publish_many(range(3))
    with running(worker):
        wait_until(lambda: outlast.queues.get(name).counts["failed"] == 3)

    assert {job.id for job in outlast.queues.dead(name)} == {job.id for job in jobs}
    assert outlast.queues.replay_dead(name, dry_run=True).matched == 3
    operation = outlast.queues.replay_dead(name, limit=2)
    wait_until(lambda: outlast.operations.get(operation.id).status == "done")
    assert outlast.queues.get(name).counts["queued"] == 2
    assert operation.id in {one.id for one in outlast.operations.list()}
    purge = outlast.queues.purge(name)
    wait_until(lambda: outlast.operations.get(purge.id).status == "done")
    discard = outlast.queues.discard_dead(name)
    wait_until(lambda: outlast.operations.get(discard.id).status == "done")
    assert outlast.queues.get(name).counts["failed"] == 0


def test_a_job_is_replayed_with_another_payload(outlast: Outlast, new_queue: NewQueue) -> None:
    job = outlast.queue(new_queue()).publish({"n": 1}).cancel()

    job.replay(payload={"n": 2}, fresh=True)

    assert (job.status, job.refresh().payload, job.replays) == ("queued", {"n": 2}, 1)
    with pytest.raises(TypeError, match="payload and fresh"):
        job.replay(body=1)


def test_a_token_reads_one_job(outlast: Outlast, new_queue: NewQueue) -> None:
    queue = outlast.queue(new_queue())
    job, other = queue.publish(1), queue.publish(2)

    token = job.token(["read"], expires_in="5m")

    with Outlast(outlast.url, key=token.token) as holder:
        assert holder.jobs.get(job.id).status == "queued"
        with pytest.raises(NotFound):
            holder.jobs.get(other.id)


def test_one_call_waits_for_many_jobs(outlast: Outlast, new_queue: NewQueue) -> None:
    outlast.stats.health()
    if outlast.transport.server_version is None:  # type: ignore[attr-defined]
        pytest.skip("the server has no POST /v1/jobs/wait")
    queue = outlast.queue(new_queue())
    jobs = [job.refresh() for job in queue.publish_many(range(20)) if isinstance(job, Job)]

    jobs[7].cancel()
    jobs[7].data["version"] = 1
    changed = outlast.jobs.wait(jobs, wait=10)

    assert [job.id for job in changed] == [jobs[7].id]
    assert changed[0].status == "cancelled"
    assert list(outlast.jobs.wait(jobs, wait=0.1)) == []


def test_a_download_goes_on_by_range_and_checks_its_bytes(
    server: Server, outlast: Outlast, new_queue: NewQueue, tmp_path: Path
) -> None:
    name, data = new_queue(), bytes(range(256)) * 8000
    worker = Worker(outlast)
    worker.job(name)(lambda job: data)
    with running(worker):
        job = outlast.queue(name).publish(None)
        wait_until(lambda: job.refresh().status == "succeeded")
    cuts = iter([Fault(cut=100_000), Fault(cut=1), Fault(drop="answer"), Fault(cut=700_000)])
    proxy = Proxy(server.url, lambda recorded: next(cuts, None) if recorded.path.startswith("/v1/objects/") else None)
    client = Outlast(proxy.url, key=server.key)

    Job(client, {"id": job.id}).download(tmp_path / "copy")
    proxy.close()

    assert (tmp_path / "copy").read_bytes() == data
    ranges = [one.headers.get("range") for one in proxy.requests if one.path.startswith("/v1/objects/")]
    assert ranges == [None, "bytes=100000-", "bytes=100001-", "bytes=100001-", "bytes=800001-"]


def test_a_damaged_download_is_deleted(server: Server, outlast: Outlast, new_queue: NewQueue, tmp_path: Path) -> None:
    name = new_queue()
    worker = Worker(outlast)
    worker.job(name)(lambda job: b"genuine bytes")
    with running(worker):
        job = outlast.queue(name).publish(None)
        wait_until(lambda: job.refresh().status == "succeeded")
    forged = Fault(answer={"status": 200, "body": "forged bytes!"})
    proxy = Proxy(server.url, lambda recorded: forged if recorded.path.startswith("/v1/objects/") else None)

    with pytest.raises(DownloadDamaged, match="SHA-256"):
        Job(Outlast(proxy.url, key=server.key), {"id": job.id}).download(tmp_path / "copy")
    proxy.close()

    assert not (tmp_path / "copy").exists()


def test_an_expired_result_raises(outlast: Outlast, new_queue: NewQueue) -> None:
    name = new_queue(result_ttl=1)
    worker = Worker(outlast)
    worker.job(name)(lambda job: "gone soon")
    with running(worker):
        job = outlast.queue(name).publish(None)
        assert job.result(timeout=60) == "gone soon"
    wait_until(lambda: outlast.request("GET", "/v1/jobs", query={"queue": name}).json()["items"][0]["status"] == "expired")

    with pytest.raises(JobExpired):
        Job(outlast, {"id": job.id, "status": "queued"}).result(timeout=10)


def test_a_trace_goes_from_a_publish_to_the_publishes_of_its_handler(outlast: Outlast, new_queue: NewQueue) -> None:
    first, second = new_queue(), new_queue()
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    worker = Worker(outlast)
    worker.job(first)(lambda job: outlast.queue(second).publish("next").id)
    outlast.request("POST", f"/v1/queues/{first}/jobs", json={"payload": 1}, headers={"traceparent": trace})

    with running(worker):
        handed = wait_until(lambda: outlast.request("POST", f"/v1/queues/{second}/receive", json={}).json()["jobs"])

    assert handed[0]["traceparent"].split("-")[1] == trace.split("-")[1]


def test_a_queue_that_dedupes_by_payload_warns_once(outlast: Outlast, new_queue: NewQueue) -> None:
    queue = outlast.queue(new_queue(dedupe_by="payload"))
    if "dedupeBy" not in queue.publish(0, idempotency_key=False).data:
        pytest.skip("the server does not send dedupeBy")

    with pytest.warns(UserWarning, match="idempotency_key=False"):
        queue.publish(1)
    assert queue.publish(2, idempotency_key=False).duplicate is False
    assert queue.publish(2, idempotency_key=False).duplicate is True


def test_changes_of_a_queue_are_followed(outlast: Outlast, new_queue: NewQueue) -> None:
    queue = outlast.queue(new_queue())
    changes = queue.changes()

    first = next(changes)
    queue.publish(1)
    seen = [next(changes)["type"] for _ in range(2)]

    assert (first["type"], first["data"]["name"]) == ("queue", queue.name)
    assert set(seen) <= {"job", "counts", "queue"}
    changes.close()  # type: ignore[attr-defined]


def test_the_state_of_the_server(outlast: Outlast) -> None:
    assert outlast.stats.health().status == "alive"
    assert outlast.stats.ready().status == "ready"
    assert "outlast_" in outlast.stats.metrics()
    assert outlast.stats.openapi().data["openapi"].startswith("3.1")


def test_records_show_fields_in_snake_case() -> None:
    record = Record({"nextCursor": 1, "maxAttempts": 2})

    assert (record.next_cursor, record.max_attempts, record["maxAttempts"]) == (1, 2, 2)
    with pytest.raises(AttributeError, match="next_cursor, max_attempts"):
        _ = record.attempts


def test_the_async_client_publishes_many_at_once(server: Server, new_queue: NewQueue) -> None:
    name = new_queue()

    async def main() -> list[Any]:
        async with AsyncOutlast(server.url, key=server.key) as outlast:
            queue = outlast.queue(name)
            jobs = await asyncio.gather(*(queue.publish(n) for n in range(50)))
            many = await queue.publish_many([item(n, key="acme") for n in range(50)])
            read = await asyncio.gather(*(job.refresh() for job in jobs))
            page = await outlast.jobs.list(queue=name, key="acme").page()
            return [len({job.id for job in read}), len(many), {job.key for job in page.items}]

    assert asyncio.run(main()) == [50, 50, {"acme"}]


def test_many_threads_share_a_client(outlast: Outlast, new_queue: NewQueue) -> None:
    from concurrent.futures import ThreadPoolExecutor

    queue = outlast.queue(new_queue())
    with ThreadPoolExecutor(16) as pool:
        jobs = list(pool.map(queue.publish, range(200)))

    assert len({job.id for job in jobs}) == 200


def test_a_transport_of_ones_own_is_used(server: Server) -> None:
    from outlast.core.steps import Answer, Request

    class Echo:
        def __init__(self) -> None:
            self.sent: list[Request] = []

        def send(self, request: Request) -> Answer:
            self.sent.append(request)
            return Answer(200, {}, json.dumps({"name": "mail"}).encode())

        def open(self, request: Request) -> Answer:
            raise NotImplementedError

        def read(self, stream: Any, timeout: float) -> bytes:
            raise NotImplementedError

        def close_stream(self, stream: Any) -> None:
            raise NotImplementedError

        def close(self) -> None:
            self.sent.clear()

    transport = Echo()

    assert Outlast(server.url, transport=transport).queues.get("mail").name == "mail"
    assert transport.sent[0].path == "/v1/queues/mail"
