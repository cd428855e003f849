#!/usr/bin/env bash
# Tests the Python SDK against the real server: lints, types, then every suite of sdk/python/tests, in an environment of its own.
# OUTLAST_BIN names the server's binary (target/debug/outlast if unset); OUTLAST_SOAK=1 adds volume. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

export OUTLAST_BIN="${OUTLAST_BIN:-$PWD/target/debug/outlast}"
if [ ! -x "$OUTLAST_BIN" ]; then
  echo "no server at $OUTLAST_BIN: build it with cargo build -p outlast, or set OUTLAST_BIN" >&2
  exit 2
fi

package=sdk/python
venv=$package/.venv
if ! cmp -s "$package/tests/requirements.txt" "$venv/requirements.txt"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$package/tests/requirements.txt"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-build-isolation -e "$package"
  cp "$package/tests/requirements.txt" "$venv/requirements.txt"
fi
python=$PWD/$venv/bin/python

cd "$package"
failed=0
"$python" -m ruff check . || failed=1
"$python" -m ruff format --check . || failed=1
"$python" -m mypy || failed=1
# Most of the tests wait for clocks and servers, so more of them than there are processors run at once, each on its own server.
"$python" -m pytest -q --durations=5 -n $(( $(nproc) * 2 )) --dist worksteal "$@" || failed=1
if [ "$failed" = 0 ]; then echo "the Python SDK: every check passed"; else echo "the Python SDK: there are failures" >&2; fi
exit $failed
