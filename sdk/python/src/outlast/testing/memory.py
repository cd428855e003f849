"""The calls of a running job in memory, for `run_job`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import NotFound
from ..schema import loads
from ..worker.held_job import HeldJob
from ..worker.job_api import Upload


@dataclass
class Saved:
    """The work that a handler has stored."""

    sections: dict[str, Any] = field(default_factory=dict)
    checkpoint: dict[str, Any] | None = None
    output: str = ""
    upload: bytes | None = None
    upload_filename: str | None = None
    upload_content_type: str | None = None
    log: list[tuple[str, Any]] = field(default_factory=list)


class MemoryJobApi:
    """Stores in memory. `on_stored` is called after each call, with the kind of the thing and how many of it there are."""

    def __init__(self, held: HeldJob, saved: Saved, on_stored: Callable[[str, int], None]) -> None:
        self._held = held
        self._saved = saved
        self._on_stored = on_stored
        self._counts: dict[str, int] = {}

    def put_section(self, name: str, value: bytes) -> None:
        self._saved.sections[name] = loads(value)
        self._stored("section", name)

    def get_section(self, name: str) -> Any:
        if name not in self._saved.sections:
            raise NotFound(f"the job has no section {name}", code="section_not_found", status=404)
        return self._saved.sections[name]

    def get_sections(self) -> dict[str, Any]:
        return dict(self._saved.sections)

    def put_checkpoint(self, data: bytes, schema_version: int) -> None:
        self._saved.checkpoint = {"data": loads(data), "schemaVersion": schema_version}
        self._stored("checkpoint", schema_version)

    def get_checkpoint_blob(self) -> bytes:
        raise NotFound("checkpoints of run_job are never blobs", code="checkpoint_not_found", status=404)

    def put_output(self, text: str, part: int) -> None:
        self._saved.output += text
        self._stored("output", text)

    def upload(self, upload: Upload) -> dict[str, Any]:
        data = upload.file.read()
        if upload.on_progress is not None:
            upload.on_progress(len(data), upload.length)
        self._saved.upload = data
        self._saved.upload_filename, self._saved.upload_content_type = upload.filename, upload.content_type
        self._stored("upload", len(data))
        return {"id": self._held.id, "accepted": True, "length": len(data)}

    def _stored(self, kind: str, what: Any) -> None:
        self._saved.log.append((kind, what))
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._on_stored(kind, self._counts[kind])
