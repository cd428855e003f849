# @generated from outlast/aio by scripts/make_sync.py; change it there.
"""A published job: its result, its events, and the calls on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar

from ..core import calls, download, sse, waiting
from ..core.steps import Plan
from ..durations import Duration, seconds
from ..record import Record, to_wire
from ..schema import decode
from .io import iterate, run

if TYPE_CHECKING:
    from .client import Outlast

T = TypeVar("T")
R = TypeVar("R")


class Job(Record, Generic[R]):
    """A job as last read. Attributes are the fields of the API in snake_case; `refresh()` reads it again."""

    def __init__(self, client: Outlast, data: dict[str, Any], result_type: Any = None) -> None:
        super().__init__(data)
        self._client = client
        self._result_type = result_type

    @property
    def id(self) -> str:
        return str(self.data["id"])

    @property
    def queue(self) -> str:
        return str(self.data["queue"])

    @property
    def status(self) -> str:
        return str(self.data["status"])

    @property
    def duplicate(self) -> bool:
        """Whether the publish found an earlier job with the same idempotency key."""
        return bool(self.data.get("duplicate", False))

    @property
    def is_ended(self) -> bool:
        return self.status in waiting.ENDED

    def refresh(self) -> Job[R]:
        """Reads the job again, into this object."""
        self._take(self._run(calls.fetch(calls.get(self._path()), self._client.retries)))
        return self

    def result(self, timeout: Duration | None = None, *, on_progress: Callable[[dict[str, Any]], None] | None = None) -> R:
        """Waits for the end of the job and gives its result; None where it has none.

        Raises JobFailed, JobCancelled, JobExpired, WaitTimeout (the job goes on) or ResultIsFile (use `download`).
        """
        limit = None if timeout is None else seconds(timeout)
        if not self.is_ended or "resultMeta" not in self.data:
            if on_progress is not None:
                job = self._run(waiting.ended_with_progress(self.id, limit, on_progress))
            else:
                job = self._run(waiting.ended(self.id, self._known_version(), limit))
            self._take(job)
        value = self._run(waiting.result(self.data, self._client.retries))
        found: R = decode(self._result_type if value is not None else None, value)
        return found

    def events(self, after: int = 0, *, timeout: Duration | None = None) -> Iterator[dict[str, Any]]:
        """The log and the progress, each event once and in order, over broken connections; the last one is `end`."""
        limit = None if timeout is None else seconds(timeout)
        return iterate(sse.follow(self.id, after, limit), self._client.transport)

    def log(self, after: int = 0, limit: int = 50) -> list[dict[str, Any]]:
        """One page of the log, without waiting for more."""
        query = {"after": after, "limit": limit}
        found = self._run(calls.fetch(calls.get(f"{self._path()}/events", query), self._client.retries))
        items: list[dict[str, Any]] = found["items"]
        return items

    def cancel(self) -> Job[R]:
        """Requests a cancel. A waiting job is cancelled at once, a running one is asked to stop."""
        self._take(self._run(calls.fetch(calls.post(f"{self._path()}/cancel", repeatable=True), self._client.retries)))
        return self

    def replay(self, *, fresh: bool | None = None, **payload: Any) -> Job[R]:
        """Starts a failed or cancelled job again: `payload=` replaces the payload, `fresh` forgets saved work."""
        unknown = set(payload) - {"payload"}
        if unknown:
            raise TypeError(f"{unknown.pop()} is not an option of replay; there are payload and fresh")
        body = dict(payload) if fresh is None else {**payload, "fresh": fresh}
        self._take(self._run(calls.replay(self.id, body, self._client.retries)))
        return self

    def direct(self, *directives: str) -> None:
        """Sends directives to the worker of the job: `checkpoint_now`, `hand_over`, `slow_down`."""
        body = {"directives": list(directives)}
        self._run(calls.fetch(calls.post(f"{self._path()}/directives", body, repeatable=True), self._client.retries))

    def token(
        self, can: Sequence[str] = ("watch",), *, expires_in: Duration | None = None, title: str | None = None
    ) -> Record:
        """A token to this job for a browser: `token`, `expires_at`, `status_url`, `stream_url`, `page_url`."""
        options = {"can": list(can), "expires_in": None if expires_in is None else seconds(expires_in), "title": title}
        body = to_wire({name: value for name, value in options.items() if value is not None})
        # A token is stored nowhere, so making a second one is harmless.
        request = calls.post(f"{self._path()}/token", body, repeatable=True)
        return Record(self._run(calls.fetch(request, self._client.retries)))

    def download(
        self, target: str | os.PathLike[str] | BinaryIO, *, on_progress: Callable[[int, int], None] | None = None
    ) -> Record:
        """Writes the result to a path or a writable. Bytes that do not match the stored SHA-256 are deleted, and it raises."""
        if not isinstance(target, (str, os.PathLike)):
            return Record(self._run(download.download(self.id, target, self._client.retries, on_progress)))
        try:
            with open(target, "wb") as file:
                return Record(self._run(download.download(self.id, file, self._client.retries, on_progress)))
        except BaseException:
            os.unlink(target)
            raise

    def checkpoint(self) -> Record:
        """The saved checkpoint; NotFound where there is none."""
        return Record(self._run(calls.fetch(calls.get(f"{self._path()}/checkpoint"), self._client.retries)))

    def sections(self) -> dict[str, Any]:
        """The stored sections by name."""
        found: dict[str, Any] = {}
        cursor = None
        while True:
            request = calls.get(f"{self._path()}/sections", {"limit": 200, "cursor": cursor})
            page = self._run(calls.fetch(request, self._client.retries))
            found.update((section["name"], section["value"]) for section in page["items"])
            cursor = page["nextCursor"]
            if cursor is None:
                return found

    def _run(self, plan: Plan[T]) -> T:
        return run(plan, self._client.transport)

    def _path(self) -> str:
        return f"/v1/jobs/{calls.segment(self.id)}"

    def _take(self, data: dict[str, Any]) -> None:
        self.data = {**self.data, **data}

    def _known_version(self) -> int:
        """A job that was just published has version 1; of a duplicate it is not known."""
        known = self.data.get("version")
        if known is not None:
            return int(known)
        return 1 if self.data.get("duplicate") is False and not self.is_ended else 0
