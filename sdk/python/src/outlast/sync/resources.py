# @generated from outlast/aio by scripts/make_sync.py; change it there.
"""The rest of the API by resource: queues, jobs, keys, operations, events of sources, and the state of the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..core import calls, waiting
from ..core.steps import Plan, Request
from ..durations import Duration, seconds
from ..record import Record, to_wire
from .io import run
from .job import Job
from .listing import Listing

if TYPE_CHECKING:
    from .client import Outlast

T = TypeVar("T")


class Resource:
    """The calls that all resources share."""

    def __init__(self, client: Outlast) -> None:
        self._client = client

    def _record(self, request: Request) -> Record:
        return Record(self._run(calls.fetch(request, self._client.retries)))

    def _run(self, plan: Plan[T]) -> T:
        return run(plan, self._client.transport)

    def _list(self, path: str, query: Mapping[str, Any]) -> Listing[Record]:
        return Listing(self._client.transport, path, query, self._client.retries, Record)

    def _job_list(self, path: str, query: Mapping[str, Any]) -> Listing[Job[Any]]:
        def make(data: dict[str, Any]) -> Job[Any]:
            return Job(self._client, data)

        return Listing(self._client.transport, path, query, self._client.retries, make)


class Queues(Resource):
    """Settings are keyword arguments in snake_case: `create("mail", visibility_timeout="2m")`."""

    def create(self, name: str, **settings: Any) -> Record:
        """Makes a queue; Conflict where the name is taken."""
        return self._record(calls.post("/v1/queues", to_wire({"name": name, **settings})))

    def put(self, name: str, *, if_match: int | None = None, **settings: Any) -> Record:
        """Makes or replaces a queue: settings that are left out get their defaults."""
        return self._record(calls.put(_queue(name), to_wire(settings), headers=_if_match(if_match)))

    def update(self, name: str, *, if_match: int | None = None, **settings: Any) -> Record:
        """Changes settings: those that are left out stay."""
        return self._record(calls.patch(_queue(name), to_wire(settings), headers=_if_match(if_match)))

    def get(self, name: str) -> Record:
        return self._record(calls.get(_queue(name)))

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Listing[Record]:
        return self._list("/v1/queues", {"limit": limit, "cursor": cursor})

    def delete(self, name: str, *, force: bool = False) -> Record | None:
        """Deletes a queue; with `force` also its jobs, which may take an operation."""
        request = calls.delete(_queue(name), {"force": True} if force else None)
        found = self._run(calls.delete_once(request, self._client.retries, "queue_not_found"))
        return None if found is None else Record(found)

    def pause(self, name: str) -> Record:
        return self._record(calls.post(f"{_queue(name)}/pause", repeatable=True))

    def resume(self, name: str) -> Record:
        return self._record(calls.post(f"{_queue(name)}/resume", repeatable=True))

    def purge(self, name: str) -> Record:
        """Cancels the waiting jobs; gives an operation."""
        return self._record(calls.post(f"{_queue(name)}/purge"))

    def rotate_secret(self, name: str, **options: Any) -> Record:
        """Makes a new signing secret, shown in the answer: `signing_secret`, `previous_valid_until`."""
        return self._record(calls.post(f"{_queue(name)}/rotate-secret", to_wire(options)))

    def dead(self, name: str, *, limit: int | None = None) -> Listing[Job[Any]]:
        """The dead letters, the latest failure first."""
        return self._job_list(f"{_queue(name)}/dead", {"limit": limit})

    def replay_dead(self, name: str, **options: Any) -> Record:
        """Replays dead letters in bulk: `ids`, `filter`, `limit`, `rate_per_second`, `dry_run`."""
        return self._record(calls.post(f"{_queue(name)}/dead/replay", to_wire(options)))

    def discard_dead(self, name: str) -> Record:
        """Deletes all dead letters; gives an operation."""
        return self._record(calls.delete(f"{_queue(name)}/dead"))


class Jobs(Resource):
    def get(self, job_id: str) -> Job[Any]:
        """Reads a job; NotFound where there is none, or its result has expired."""
        request = calls.get(f"/v1/jobs/{calls.segment(job_id)}")
        return Job(self._client, self._run(calls.fetch(request, self._client.retries)))

    def list(
        self,
        *,
        queue: str | None = None,
        status: str | None = None,
        key: str | None = None,
        tags: Mapping[str, str] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Listing[Job[Any]]:
        """Jobs, newest first; all conditions must hold."""
        query: dict[str, Any] = {"queue": queue, "status": status, "key": key, "limit": limit, "cursor": cursor}
        query.update((f"tag.{name}", value) for name, value in (tags or {}).items())
        return self._job_list("/v1/jobs", query)

    def wait(self, jobs: Iterable[Job[Any]], *, wait: Duration = 30) -> Sequence[Job[Any]]:
        """Waits until one of up to 1,000 jobs changes; gives those that did, read again. None after the wait."""
        known = {job.id: job for job in jobs}
        versions = {job_id: int(job.data.get("version", 0)) for job_id, job in known.items()}
        changed = self._run(waiting.wait_many(versions, seconds(wait), self._client.retries))
        found = []
        for entry in changed:
            job = known[entry["id"]]
            job.data = {**job.data, **entry}
            found.append(job)
        return found


class Keys(Resource):
    def create(self, name: str, scopes: Iterable[str], **options: Any) -> Record:
        """Makes a key; `key` is shown only in this answer. Options: `namespace`, `expires_in`."""
        return self._record(calls.post("/v1/keys", to_wire({"name": name, "scopes": [*scopes], **options})))

    def list(self, *, limit: int | None = None) -> Listing[Record]:
        return self._list("/v1/keys", {"limit": limit})

    def revoke(self, key_id: str, *, force: bool = False) -> Record:
        return self._record(calls.delete(f"/v1/keys/{calls.segment(key_id)}", {"force": True} if force else None))


class Operations(Resource):
    def get(self, operation_id: str) -> Record:
        return self._record(calls.get(f"/v1/operations/{calls.segment(operation_id)}"))

    def list(self, *, limit: int | None = None) -> Listing[Record]:
        """The newest operations; there is no second page."""
        return self._list("/v1/operations", {"limit": limit})

    def stop(self, operation_id: str) -> Record:
        """Stops an operation; completed steps stay done."""
        return self._record(calls.post(f"/v1/operations/{calls.segment(operation_id)}/stop", repeatable=True))


class Events(Resource):
    """Events of sources."""

    def send(self, source: str, kind: str, payload: Any, *, idempotency_key: str | None = None) -> Record:
        """Sends an event to a source; repeated after a lost answer only with an idempotency key."""
        headers = {"idempotency-key": idempotency_key} if idempotency_key else None
        path = f"/events/{calls.segment(source)}/{calls.segment(kind)}"
        return self._record(calls.post(path, payload, repeatable=idempotency_key is not None, headers=headers))

    def list(self, *, source: str | None = None, type: str | None = None, limit: int | None = None) -> Listing[Record]:
        return self._list("/v1/events", {"source": source, "type": type, "limit": limit})

    def get(self, event_id: str) -> Record:
        return self._record(calls.get(f"/v1/events/{calls.segment(event_id)}"))

    def replay(self, event_id: str, *, queue: str | None = None) -> Record:
        """Makes new jobs from a stored event, in one queue or in all that take it."""
        body = {} if queue is None else {"queue": queue}
        return self._record(calls.post(f"/v1/events/{calls.segment(event_id)}/replay", body))


class Stats(Resource):
    """The state of the server."""

    def health(self) -> Record:
        return self._record(calls.get("/healthz"))

    def ready(self) -> Record:
        """Unavailable where the server does not take writes."""
        return self._record(calls.get("/readyz"))

    def workers(self) -> list[Record]:
        """The workers that receive, and the jobs they hold."""
        found = self._run(calls.fetch(calls.get("/v1/workers"), self._client.retries))
        return [Record(worker) for worker in found.get("items", found.get("workers", []))]

    def metrics(self) -> str:
        """The OpenMetrics text."""
        answer = self._run(calls.fetch_answer(calls.get("/metrics"), self._client.retries))
        return answer.body.decode()

    def openapi(self) -> Record:
        return self._record(calls.get("/openapi.json"))

    def reload(self) -> Record:
        """Makes the server read its configuration file again."""
        return self._record(calls.post("/v1/reload", repeatable=True))


def _queue(name: str) -> str:
    return f"/v1/queues/{calls.segment(name)}"


def _if_match(version: int | None) -> dict[str, str] | None:
    return None if version is None else {"if-match": f'"{version}"'}
