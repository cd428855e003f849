#!/usr/bin/env bash
# Measures the Python SDK against bare loops in the same run. Uses the environment that scripts/test-sdk-python.sh makes, or makes
# a plain one: the benchmark needs nothing but the package. A missed goal is printed and does not fail the command.
set -euo pipefail
cd "$(dirname "$0")/../sdk/python"

export OUTLAST_BIN="${OUTLAST_BIN:?set OUTLAST_BIN to the release binary of the server}"
python=.venv/bin/python
[ -x "$python" ] || python=python3
PYTHONPATH=src "$python" bench/ratios.py "$@" || true
