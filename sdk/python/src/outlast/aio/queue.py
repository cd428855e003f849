"""A queue to publish to."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..core import publish as core
from ..core import sse
from ..core.publish import Item, PublishOptions
from ..errors import Refused
from .io import each, iterate, run
from .job import AsyncJob

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .client import AsyncOutlast

P = TypeVar("P")
R = TypeVar("R")

# Half of the server's default limit for a batch.
BATCH_BYTES_MAX = 4 * 1024 * 1024


class AsyncQueue(Generic[P, R]):
    """Publishes to one queue; `payload` and `result` are the types of its jobs."""

    def __init__(self, client: AsyncOutlast, name: str, result_type: Any) -> None:
        self._client = client
        self.name = name
        self._result_type = result_type

    async def publish(self, payload: P, **options: Unpack[PublishOptions]) -> AsyncJob[R]:
        """Publishes one job. Without `idempotency_key` a random one is made, so that a lost answer never makes a second job."""
        plan = core.publish(self.name, payload, options, self._client.retries)
        return AsyncJob(self._client, await run(plan, self._client.transport), self._result_type)

    async def publish_many(
        self, items: Iterable[P | Item] | AsyncIterable[P | Item], *, size: int = 500
    ) -> list[AsyncJob[R] | Refused]:
        """Publishes payloads, or `item(payload, key=…)` where they have options. One answer per item, in order."""
        if not 1 <= size <= 1000:
            raise ValueError(f"size must be from 1 to 1000, not {size}")
        answers: list[AsyncJob[R] | Refused] = []
        batch: list[tuple[bytes, bool, bool]] = []
        batch_bytes = 0
        async for item in each(items):
            job = core.encode_job(item)
            if batch and (len(batch) == size or batch_bytes + len(job[0]) > BATCH_BYTES_MAX):
                answers.extend(await self._publish_batch(batch))
                batch, batch_bytes = [], 0
            batch.append(job)
            batch_bytes += len(job[0]) + 1
        if batch:
            answers.extend(await self._publish_batch(batch))
        return answers

    def changes(self) -> AsyncIterator[dict[str, Any]]:
        """The changes of the queue as `{type, data}`, for dashboards; it never ends. A reconnect starts with the whole queue."""
        return iterate(sse.follow_queue(self.name), self._client.transport)

    async def _publish_batch(self, batch: list[tuple[bytes, bool, bool]]) -> list[AsyncJob[R] | Refused]:
        plan = core.publish_batch(
            self.name,
            [job for job, _, _ in batch],
            [is_made for _, is_made, _ in batch],
            keyed=all(has_key for _, _, has_key in batch),
            retries=self._client.retries,
        )
        answers = await run(plan, self._client.transport)
        return [
            answer if isinstance(answer, Refused) else AsyncJob(self._client, answer, self._result_type) for answer in answers
        ]
