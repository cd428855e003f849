"""Runs the code of README.md: a comment above each block says how."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from outlast import Outlast
from outlast.testing import Server, start_outlast

README = ROOT / "sdk" / "python" / "README.md"
BLOCK = re.compile(r"(?:<!-- run: (\w+) -->\n)?```python\n(.*?)```", re.DOTALL)


def test_the_code_of_the_readme_runs(tmp_path: Path) -> None:
    blocks = BLOCK.findall(README.read_text())
    assert {how for how, _ in blocks} == {"worker", "program", "import", "pytest"}
    worker: subprocess.Popen[bytes] | None = None
    with start_outlast() as server, Outlast(server.url, key=server.key) as outlast:
        environment = {**os.environ, "OUTLAST_URL": server.url, "OUTLAST_KEY": server.key}
        outlast.queues.create("reports")
        try:
            for number, (how, code) in enumerate(blocks):
                path = tmp_path / f"test_block_{number}.py"
                path.write_text(code)
                if how == "worker":
                    worker = subprocess.Popen([sys.executable, path], env=environment)
                else:
                    run(how, path, environment)
            check_the_worker(outlast)
        finally:
            if worker is not None:
                worker.send_signal(signal.SIGTERM)
                assert worker.wait(60) == 0


def run(how: str, path: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", path] if how == "pytest" else [sys.executable, path]
    ended = subprocess.run(command, env=environment, capture_output=True, timeout=120, cwd=path.parent, check=False)
    assert ended.returncode == 0, f"{path.read_text()}\n{ended.stdout.decode()}\n{ended.stderr.decode()}"


def check_the_worker(outlast: Outlast) -> None:
    report = outlast.queue("reports").publish({"title": "Waves"}).result(timeout=60)
    assert report["title"] == "Waves"
    assert report["sections"][160] == "Waves: section-161"


def test_the_headline_is_about_fifteen_lines() -> None:
    how, code = BLOCK.findall(README.read_text())[0]
    assert how == "worker"
    assert len(code.splitlines()) <= 16


def test_the_fixture_is_found_by_its_entry_point(server: Server, pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.has_plugin("outlast")
