"""The package against the documents of the repository: errors, operations, generated files, the public API, the wheel."""

import inspect
import json
import re
import subprocess
import sys
import typing
import venv
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT

import outlast
from outlast import errors, testing, webhook, wire
from outlast.record import camel, snake

PACKAGE = ROOT / "sdk" / "python"
OPENAPI = json.loads((ROOT / "docs" / "reference" / "openapi.json").read_text())

# The method for each operation, or after "none:" the reason why there is none.
OPERATIONS = {
    "POST /v1/queues": "Outlast.queues.create",
    "GET /v1/queues": "Outlast.queues.list",
    "PUT /v1/queues/{queue}": "Outlast.queues.put",
    "PATCH /v1/queues/{queue}": "Outlast.queues.update",
    "GET /v1/queues/{queue}": "Outlast.queues.get",
    "DELETE /v1/queues/{queue}": "Outlast.queues.delete",
    "POST /v1/queues/{queue}/pause": "Outlast.queues.pause",
    "POST /v1/queues/{queue}/resume": "Outlast.queues.resume",
    "POST /v1/queues/{queue}/rotate-secret": "Outlast.queues.rotate_secret",
    "POST /v1/queues/{queue}/purge": "Outlast.queues.purge",
    "GET /v1/queues/{queue}/dead": "Outlast.queues.dead",
    "DELETE /v1/queues/{queue}/dead": "Outlast.queues.discard_dead",
    "POST /v1/queues/{queue}/dead/replay": "Outlast.queues.replay_dead",
    "POST /v1/queues/{queue}/jobs": "Queue.publish",
    "POST /v1/queues/{queue}/jobs/batch": "Queue.publish_many",
    "GET /v1/queues/{queue}/stream": "Queue.changes",
    "POST /v1/queues/{queue}/receive": "Worker.run",
    "POST /v1/receive": "Worker.run",
    "GET /v1/jobs": "Outlast.jobs.list",
    "POST /v1/jobs/wait": "Outlast.jobs.wait",
    "GET /v1/jobs/{id}": "Outlast.jobs.get",
    "DELETE /v1/jobs/{id}": "none: the same as POST /v1/jobs/{id}/cancel",
    "GET /v1/jobs/{id}/events": "Job.log",
    "GET /v1/jobs/{id}/stream": "Job.events",
    "GET /v1/jobs/{id}/ws": "none: Job.events reads the same log as server-sent events",
    "GET /v1/jobs/{id}/result": "Job.result",
    "PUT /v1/jobs/{id}/result": "RunningJob.upload",
    "POST /v1/jobs/{id}/cancel": "Job.cancel",
    "POST /v1/jobs/{id}/token": "Job.token",
    "POST /v1/jobs/{id}/replay": "Job.replay",
    "POST /v1/jobs/{id}/heartbeat": "none: the keeper sends all of a process in POST /v1/heartbeats",
    "PUT /v1/jobs/{id}/progress": "none: the keeper sends all of a process in POST /v1/progress",
    "POST /v1/jobs/{id}/output": "RunningJob.output",
    "POST /v1/jobs/{id}/directives": "Job.direct",
    "PUT /v1/jobs/{id}/checkpoint": "RunningJob.checkpoint",
    "GET /v1/jobs/{id}/checkpoint": "Job.checkpoint",
    "GET /v1/jobs/{id}/sections": "Job.sections",
    "GET /v1/jobs/{id}/sections/{name}": "RunningJob.section",
    "PUT /v1/jobs/{id}/sections/{name}": "RunningJob.section",
    "PUT /v1/jobs/{id}/checkpoint/blob": "RunningJob.checkpoint",
    "GET /v1/jobs/{id}/checkpoint/blob": "RunningJob.checkpoint",
    "POST /v1/jobs/{id}/result/upload": "RunningJob.upload",
    "POST /v1/jobs/{id}/result/finalize": "RunningJob.upload",
    "GET /v1/objects/{link}": "Job.download",
    "PUT /v1/objects/{link}": "RunningJob.upload",
    "POST /v1/jobs/{id}/ack": "none: a worker reports all outcomes in POST /v1/outcomes",
    "POST /v1/jobs/{id}/nack": "none: a worker reports all outcomes in POST /v1/outcomes",
    "POST /v1/jobs/{id}/defer": "none: a worker reports all outcomes in POST /v1/outcomes",
    "POST /v1/jobs/{id}/release": "none: a worker reports all outcomes in POST /v1/outcomes",
    "POST /v1/jobs/{id}/cancelled": "none: a worker reports all outcomes in POST /v1/outcomes",
    "POST /v1/outcomes": "Worker.run",
    "POST /v1/heartbeats": "Worker.run",
    "POST /v1/progress": "RunningJob.progress",
    "GET /v1/workers": "Outlast.stats.workers",
    "POST /events/{source}/{type}": "Outlast.events.send",
    "GET /v1/events": "Outlast.events.list",
    "GET /v1/events/{id}": "Outlast.events.get",
    "POST /v1/events/{id}/replay": "Outlast.events.replay",
    "GET /v1/operations": "Outlast.operations.list",
    "GET /v1/operations/{id}": "Outlast.operations.get",
    "POST /v1/operations/{id}/stop": "Outlast.operations.stop",
    "POST /v1/keys": "Outlast.keys.create",
    "GET /v1/keys": "Outlast.keys.list",
    "DELETE /v1/keys/{id}": "Outlast.keys.revoke",
    "POST /v1/reload": "Outlast.stats.reload",
    "GET /api/queues": "none: the simple form is for consumers without an SDK",
    "GET /api/queues/{queue}/messages": "none: the simple form is for consumers without an SDK",
    "POST /api/queues/{queue}/ack": "none: the simple form is for consumers without an SDK",
    "POST /api/queues/{queue}/nack": "none: the simple form is for consumers without an SDK",
    "GET /": "none: a page for people",
    "GET /healthz": "Outlast.stats.health",
    "GET /livez": "none: the same as GET /healthz",
    "GET /readyz": "Outlast.stats.ready",
    "GET /metrics": "Outlast.stats.metrics",
    "GET /openapi.json": "Outlast.stats.openapi",
    "POST /v1/dev/clock": "testing.Server.advance",
}
# Operations that servers of this version may have or not: they came with `x-outlast-version`.
NEW = {"POST /v1/receive", "POST /v1/jobs/wait", "GET /v1/workers", "POST /v1/dev/clock"}


def test_every_operation_has_a_method_or_a_reason() -> None:
    in_document = {
        f"{method.upper()} {path}" for path, methods in OPENAPI["paths"].items() for method in methods if method != "parameters"
    }

    assert in_document - set(OPERATIONS) == set()
    assert set(OPERATIONS) - in_document - NEW == set()


@pytest.mark.parametrize("name", sorted({name for name in OPERATIONS.values() if not name.startswith("none:")}))
def test_every_named_method_exists(name: str) -> None:
    client = outlast.Outlast("http://127.0.0.1:1")
    first, *rest = name.split(".")
    found: Any = client if first == "Outlast" else testing if first == "testing" else getattr(outlast, first)
    if name == "RunningJob.checkpoint":
        from outlast.worker.checkpoint import Checkpoint

        assert callable(Checkpoint.save)
        return
    for part in rest:
        found = getattr(found, part)
    assert callable(found)


def test_every_code_of_the_errors_page_has_its_class() -> None:
    page = (ROOT / "docs" / "reference" / "ERRORS.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \|", page, re.MULTILINE)
    assert len(rows) > 40
    documented = {code for code, _ in rows}

    assert documented == set(errors.FAMILIES)
    for code, status in rows:
        assert issubclass(errors.family(code, int(status)), errors.Refused)


def test_the_table_of_the_scenarios_has_every_code() -> None:
    table = yaml.safe_load((ROOT / "sdk" / "scenarios.yaml").read_text())["errors"]
    assert set(errors.FAMILIES) == set(table)


@pytest.mark.parametrize("script", ["make_sync.py", "make_wire.py"])
def test_generated_files_are_up_to_date(script: str) -> None:
    ended = subprocess.run([sys.executable, PACKAGE / "scripts" / script, "--check"], capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()


def test_wire_types_can_be_resolved() -> None:
    for name in wire.__all__:
        kind = getattr(wire, name)
        if isinstance(kind, type):
            typing.get_type_hints(kind)


def test_the_public_api_is_that_of_the_snapshot() -> None:
    """Run with OUTLAST_GEN=1 to write the snapshot."""
    import os

    shown = "\n".join(public_api()) + "\n"
    snapshot = PACKAGE / "tests" / "public_api.txt"
    if os.environ.get("OUTLAST_GEN") == "1":
        snapshot.write_text(shown)
    assert snapshot.read_text() == shown, "the public API has changed; check it, then run with OUTLAST_GEN=1"


def public_api() -> list[str]:
    from outlast import django, fastapi, flask

    lines: list[str] = []
    for module in (outlast, webhook, testing, fastapi, flask, django):
        names = getattr(module, "__all__", None) or [
            name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__ and name[0] != "_"
        ]
        for name in sorted(names):
            lines += describe(f"{module.__name__}.{name}", getattr(module, name))
    return lines


def describe(name: str, value: Any) -> list[str]:
    if not inspect.isclass(value):
        return [f"{name}{parameters(value)}" if callable(value) else name]
    lines = [f"class {name}{parameters(value)}"]
    for member, inner in sorted(vars(value).items()):
        if member[0] == "_":
            continue
        if isinstance(inner, property):
            lines.append(f"  {member}")
        elif callable(inner) or isinstance(inner, staticmethod):
            function = inner.__func__ if isinstance(inner, staticmethod) else inner
            lines.append(f"  {member}{parameters(function)}")
    return lines


def parameters(value: Any) -> str:
    try:
        names = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ""
    return f"({', '.join(str(one).split(':')[0].split(' = ')[0] for one in names)})"


def test_names_survive_both_directions() -> None:
    for name in ("visibility_timeout", "rate_per_second", "id"):
        assert snake(camel(name)) == name


def test_the_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    """Built, installed without dependencies and imported: the package needs nothing but the standard library."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(PACKAGE)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
    program = (
        "import outlast, outlast.webhook, outlast.testing, outlast.wire, importlib.resources as r\n"
        "assert (r.files('outlast') / 'py.typed').is_file()\n"
        "try:\n    outlast.AsyncOutlast\nexcept ImportError as error:\n    assert 'outlast[async]' in str(error)\n"
        "else:\n    raise SystemExit('aiohttp is not there')\n"
        "print(outlast.__version__)"
    )
    shown = subprocess.run([python, "-c", program], check=True, capture_output=True, cwd=tmp_path).stdout.decode()
    assert shown.strip() == outlast.__version__
