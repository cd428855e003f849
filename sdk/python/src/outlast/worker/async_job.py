"""The `job` that an `async def` handler gets: the same names, awaited where they wait."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, Generic, TypeVar

from .checkpoint import Checkpoint, SavedState
from .running_job import RunningJob

P = TypeVar("P")
T = TypeVar("T")


async def in_thread(pool: ThreadPoolExecutor, call: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, call, *arguments)


class AsyncCheckpoint:
    def __init__(self, inner: Checkpoint, pool: ThreadPoolExecutor) -> None:
        self._inner = inner
        self._pool = pool

    async def load(self) -> SavedState | None:
        return await in_thread(self._pool, self._inner.load)

    async def save(self, data: Any, schema_version: int = 1) -> None:
        await in_thread(self._pool, self._inner.save, data, schema_version)

    async def tick(self, state: Callable[[], Any], schema_version: int = 1) -> None:
        # Most ticks only count; those that save must not block the loop.
        if self._inner.count_tick():
            await in_thread(self._pool, self._inner.save_tick, state, schema_version)


class AsyncRunningJob(Generic[P]):
    """One attempt at a job, for handlers in a loop. Attributes are those of `RunningJob`."""

    payload: P

    def __init__(self, inner: RunningJob[P], pool: ThreadPoolExecutor) -> None:
        self._inner = inner
        self._pool = pool
        self.checkpoint = AsyncCheckpoint(inner.checkpoint, pool)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def progress(self, pct: float | None = None, stage: str | None = None, **fields: Any) -> None:
        self._inner.progress(pct, stage, **fields)

    def usage(self, **amounts: float) -> None:
        self._inner.usage(**amounts)

    async def output(self, text: str) -> None:
        await in_thread(self._pool, self._inner.output, text)

    async def section(self, name: str, make: Callable[[], Awaitable[Any]]) -> Any:
        """As `RunningJob.section`, with a coroutine function."""
        self._inner.check()
        if name in self._inner._done_sections:
            return await in_thread(self._pool, self._inner._api.get_section, name)
        return await self._store(name, await make())

    async def each_section(
        self, names: Iterable[str], make: Callable[[str], Awaitable[Any]], *, concurrency: int = 1
    ) -> list[Any]:
        """As `RunningJob.each_section`, with a coroutine function. No section begins after the first failure or stop."""
        ordered = list(names)
        if len(set(ordered)) != len(ordered):
            raise ValueError("section names must differ")
        stored = await in_thread(self._pool, self._inner.sections)
        values = {name: stored[name] for name in ordered if name in stored}
        self.progress(items_done=len(values), items_total=len(ordered))
        missing = iter([name for name in ordered if name not in values])

        async def work() -> None:
            for name in missing:
                self._inner._stop_between_sections()
                values[name] = await self._store(name, await make(name))
                self.progress(items_done=len(values), items_total=len(ordered))

        tasks = [asyncio.ensure_future(work()) for _ in range(concurrency)]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        return [values[name] for name in ordered]

    async def sections(self) -> dict[str, Any]:
        return await in_thread(self._pool, self._inner.sections)

    async def upload(self, file: str | os.PathLike[str] | BinaryIO | bytes, **options: Any) -> dict[str, Any]:
        return await in_thread(self._pool, lambda: self._inner.upload(file, **options))

    async def _store(self, name: str, value: Any) -> Any:
        """Stores a section. A cancel of the task does not interrupt it: the work is done."""
        return await asyncio.shield(in_thread(self._pool, self._inner._make_section, name, lambda: value))
