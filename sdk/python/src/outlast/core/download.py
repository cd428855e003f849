"""Downloads: follows the link, goes on by range after a broken connection, and checks length and SHA-256."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, BinaryIO
from urllib.parse import urljoin

from ..errors import DownloadDamaged
from .calls import fetch, get, segment
from .retry import Tries, backoff, exchange
from .steps import Answer, Close, NoAnswer, Open, Plan, Read, Request, Sleep

READ_TIMEOUT = 60.0


def link_of(answer: Answer) -> Request:
    """The request for the link of a 307. It needs no key, and another host must not get one."""
    return Request("GET", "", url=urljoin("", answer.headers["location"]), repeatable=True, with_key=False)


def download(job_id: str, sink: BinaryIO, retries: int, on_progress: Callable[[int, int], None] | None) -> Plan[dict[str, Any]]:
    """Writes the result to the sink and gives its `resultMeta`. Every broken connection that brought bytes resets the count."""
    job = yield from fetch(get(f"/v1/jobs/{segment(job_id)}"), retries)
    meta: dict[str, Any] = job.get("resultMeta") or {}
    progress = _Progress(sink, meta.get("length"), on_progress)
    failures = 0
    while True:
        answer = yield from exchange(get(f"/v1/jobs/{segment(job_id)}/result"), Tries(retries + 1))
        if answer.status != 307:
            progress.write(answer.body)
            break
        before = progress.position
        is_whole = yield from _read_link(link_of(answer), progress)
        if is_whole:
            break
        failures = 0 if progress.position > before else failures + 1
        if failures > retries:
            raise DownloadDamaged(
                f"job {job_id}: the download broke off after {progress.position} bytes, {failures} times in a row"
            )
        yield Sleep(backoff(failures))
    progress.check(job_id, meta)
    return meta


class _Progress:
    """The bytes that were written so far."""

    def __init__(self, sink: BinaryIO, length: int | None, report: Callable[[int, int], None] | None) -> None:
        self._sink = sink
        self._length = length
        self._report = report
        self._digest = hashlib.sha256()
        self.position = 0

    def write(self, chunk: bytes) -> None:
        self._sink.write(chunk)
        self._digest.update(chunk)
        self.position += len(chunk)
        if self._report is not None:
            self._report(self.position, self._length or self.position)

    def check(self, job_id: str, meta: dict[str, Any]) -> None:
        if self._length is not None and self.position != self._length:
            raise DownloadDamaged(f"job {job_id}: {self.position} bytes came, {self._length} were stored")
        if meta.get("sha256") and self._digest.hexdigest() != meta["sha256"]:
            raise DownloadDamaged(f"job {job_id}: the SHA-256 of the bytes differs from the stored one")


def _read_link(request: Request, progress: _Progress) -> Plan[bool]:
    """Reads from where the download is; true at the end of the object."""
    if progress.position:
        request.headers["range"] = f"bytes={progress.position}-"
    try:
        answer: Answer = yield Open(request)
    except NoAnswer:
        return False
    if answer.status not in (200, 206):
        yield Close(answer.stream)
        return False
    # A server that ignores the range starts again: the bytes that are there already are skipped.
    skip = progress.position if answer.status == 200 else 0
    try:
        while True:
            chunk = yield Read(answer.stream, READ_TIMEOUT)
            if not chunk:
                break
            if skip:
                dropped = min(skip, len(chunk))
                skip, chunk = skip - dropped, chunk[dropped:]
            if chunk:
                progress.write(chunk)
    except NoAnswer:
        yield Close(answer.stream)
        return False
    yield Close(answer.stream)
    return True
