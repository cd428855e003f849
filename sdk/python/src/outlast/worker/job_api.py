"""The calls of a running job. `HttpJobApi` makes them; `outlast.testing` has a second implementation in memory."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, TypeVar

from ..core import calls
from ..core.retry import Tries, exchange
from ..core.steps import Answer, Plan, Request
from ..driver import run
from ..errors import Busy, InDoubt, InvalidRequest, LeaseLost, Refused, Unavailable
from ..transport import Transport
from .held_job import HeldJob

T = TypeVar("T")

# Parts of an upload are read in blocks of this size.
BLOCK_BYTES = 1024 * 1024
PART_BYTES_MIN = 5 * 1024 * 1024


@dataclass
class Upload:
    """A file to upload. `length` is None where it is not known."""

    file: BinaryIO
    length: int | None
    filename: str | None
    content_type: str | None
    parts: int | None = None
    on_progress: Callable[[int, int | None], None] | None = None


class JobApi(Protocol):
    def put_section(self, name: str, value: bytes) -> None:
        """Stores a section; durable when it returns."""

    def get_section(self, name: str) -> Any:
        """The value of a stored section."""

    def get_sections(self) -> dict[str, Any]:
        """Every stored section."""

    def put_checkpoint(self, data: bytes, schema_version: int) -> None:
        """Stores a checkpoint; durable when it returns."""

    def get_checkpoint_blob(self) -> bytes:
        """The bytes of a checkpoint that was too large for JSON."""

    def put_output(self, text: str, part: int) -> None:
        """Appends text to the log."""

    def upload(self, upload: Upload) -> dict[str, Any]:
        """Uploads the result; it counts with the ack."""


class HttpJobApi:
    """Calls with the lease, repeated as long as it lasts. A lost lease stops the work."""

    def __init__(self, transport: Transport, held: HeldJob, inline_bytes_max: int) -> None:
        self._transport = transport
        self._held = held
        self._path = f"/v1/jobs/{calls.segment(held.id)}"
        self._inline_bytes_max = inline_bytes_max
        self._sends_part = True

    def put_section(self, name: str, value: bytes) -> None:
        self._send(calls.put(f"{self._path}/sections/{calls.segment(name)}", value, headers=self._lease()))

    def get_section(self, name: str) -> Any:
        return self._send(calls.get(f"{self._path}/sections/{calls.segment(name)}")).json()

    def get_sections(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        cursor = None
        while True:
            page = self._send(calls.get(f"{self._path}/sections", {"limit": 200, "cursor": cursor})).json()
            found.update((section["name"], section["value"]) for section in page["items"])
            cursor = page["nextCursor"]
            if cursor is None:
                return found

    def put_checkpoint(self, data: bytes, schema_version: int) -> None:
        if len(data) <= self._inline_bytes_max:
            body = b'{"schemaVersion":' + str(schema_version).encode() + b',"data":' + data + b"}"
            self._send(calls.put(f"{self._path}/checkpoint", body, headers=self._lease()))
            return
        headers = {**self._lease(), "content-type": "application/octet-stream"}
        query = {"schemaVersion": schema_version}
        self._send(calls.put(f"{self._path}/checkpoint/blob", data, query=query, headers=headers))

    def get_checkpoint_blob(self) -> bytes:
        return self._send(calls.get(f"{self._path}/checkpoint/blob")).body

    def put_output(self, text: str, part: int) -> None:
        body: dict[str, Any] = {"text": text, "lease": self._held.lease}
        # Without `part` a repeat would append the text twice.
        if self._sends_part and getattr(self._transport, "server_version", None) is not None:
            try:
                self._send(calls.post(f"{self._path}/output", {**body, "part": part}, repeatable=True))
                return
            except InvalidRequest as refused:
                # Another node of a cluster that is being upgraded.
                if not any(error.get("field") == "part" for error in refused.errors):
                    raise
                self._sends_part = False
        self._send(calls.post(f"{self._path}/output", body))

    def upload(self, upload: Upload) -> dict[str, Any]:
        if upload.parts is not None:
            return self._upload_by_links(upload)
        start = upload.file.tell() if upload.file.seekable() else None
        tries = 0
        while True:
            tries += 1
            try:
                return self._upload_direct(upload)
            except (InDoubt, Busy, Unavailable):
                # A second upload of the same attempt replaces the first; a stream cannot be read twice.
                if start is None or not self._held.may_report() or tries >= 10:
                    raise
                upload.file.seek(start)
                time.sleep(min(5.0, 0.1 * 2**tries))

    def _upload_direct(self, upload: Upload) -> dict[str, Any]:
        headers = {**self._lease(), "content-type": upload.content_type or "application/octet-stream"}
        if upload.length is not None:
            headers["content-length"] = str(upload.length)
        body = _Reader(upload.file, upload.length, upload.on_progress)
        query = calls.query_of({"filename": upload.filename})
        answer = self._send_once(Request("PUT", f"{self._path}/result", query, headers, body))
        found: dict[str, Any] = answer.json()
        return found

    def _upload_by_links(self, upload: Upload) -> dict[str, Any]:
        """Each part is sent to a link of its own and repeated alone. A store with one link gets one part."""
        if upload.length is None or not upload.file.seekable():
            raise ValueError("an upload in parts needs a file that can seek; leave out `parts` for a stream")
        wanted = max(1, min(upload.parts or 1, -(-upload.length // PART_BYTES_MIN)))
        body: dict[str, Any] = {"lease": self._held.lease}
        if wanted > 1:
            body["parts"] = wanted
        for name, value in (("filename", upload.filename), ("contentType", upload.content_type)):
            if value is not None:
                body[name] = value
        made = self._send(calls.post(f"{self._path}/result/upload", body, repeatable=True)).json()
        links = made.get("parts") or [{"number": 1, "url": made["url"]}]
        start, size = upload.file.tell(), -(-upload.length // len(links))
        done: list[dict[str, Any]] = []
        for index, link in enumerate(links):
            offset = index * size
            length = max(0, min(size, upload.length - offset))
            etag = self._put_part(upload, link["url"], made.get("headers") or {}, start + offset, length)
            done.append({"number": link["number"], "etag": etag})
        finalize: dict[str, Any] = {"uploadId": made["uploadId"], "length": upload.length, "lease": self._held.lease}
        if made.get("parts"):
            finalize["parts"] = done
        found: dict[str, Any] = self._send(calls.post(f"{self._path}/result/finalize", finalize, repeatable=True)).json()
        return found

    def _put_part(self, upload: Upload, url: str, headers: dict[str, str], offset: int, length: int) -> str:
        """Sends one part until it is stored; gives its ETag."""
        tries = 0
        while True:
            tries += 1
            upload.file.seek(offset)
            body = _Reader(upload.file, length, upload.on_progress)
            own = {**{name.lower(): value for name, value in headers.items()}, "content-length": str(length)}
            request = Request("PUT", "", headers=own, body=body, url=url, with_key=False)
            try:
                return self._send_once(request).headers.get("etag", "")
            except (InDoubt, Busy, Unavailable):
                if tries >= 10 or not self._held.may_report():
                    raise
                time.sleep(min(5.0, 0.1 * 2**tries))

    def _lease(self) -> dict[str, str]:
        return {"x-outlast-lease": self._held.lease}

    def _send(self, request: Request) -> Answer:
        return self._run(exchange(request, Tries(go_on=self._held.may_report)))

    def _send_once(self, request: Request) -> Answer:
        """Without a repeat: the file of the body has been read, and the caller goes back in it."""
        return self._run(exchange(request, Tries(1)))

    def _run(self, plan: Plan[T]) -> T:
        try:
            return run(plan, self._transport, self._sleep)
        except LeaseLost:
            self._held.stop("lost")
            raise
        except Refused as refused:
            if refused.code in ("job_not_found", "not_running"):
                self._held.stop("lost")
                self._held.check()
            raise

    def _sleep(self, seconds: float) -> None:
        """Between two tries; a lost lease ends it."""
        until = time.monotonic() + seconds
        while self._held.stop_reason != "lost" and time.monotonic() < until:
            time.sleep(min(0.1, max(0.0, until - time.monotonic())))


class _Reader(io.RawIOBase):
    """Reads at most `length` bytes of a file and reports how many have been read."""

    def __init__(self, file: BinaryIO, length: int | None, report: Callable[[int, int | None], None] | None) -> None:
        self._file = file
        self._length = length
        self._report = report
        self._position = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        wanted = BLOCK_BYTES if size is None or size < 0 else size
        if self._length is not None:
            wanted = min(wanted, self._length - self._position)
        block = self._file.read(wanted) if wanted else b""
        self._position += len(block)
        if self._report is not None and block:
            self._report(self._position, self._length)
        return block


def file_length(file: BinaryIO) -> int | None:
    """The bytes from the present position to the end; None of a stream."""
    if not file.seekable():
        return None
    position = file.tell()
    end = file.seek(0, os.SEEK_END)
    file.seek(position)
    return end - position
