#!/usr/bin/env bash
# Runs every test on a machine where nothing was prepared: installs what is missing (Debian packages, Python packages),
# builds, tests, and leaves nothing running. Needs Rust, Node and Python.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

install_packages() {
  local missing=() command package
  while read -r command package; do
    command -v "$command" >/dev/null 2>&1 || [ -x "/usr/sbin/$command" ] || missing+=("$package")
  done <<'LIST'
cc gcc
strace strace
mkfs.ext4 e2fsprogs
LIST
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  [ ${#missing[@]} -eq 0 ] && return
  say "installing ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

install_python() {
  local stamp=.venv/requirements.txt
  if [ ! -f "$stamp" ] || ! cmp -s tests/requirements.txt "$stamp"; then
    say "making the Python environment"
    rm -rf .venv
    python3 -m venv .venv
    .venv/bin/pip install --quiet --disable-pip-version-check -r tests/requirements.txt
    cp tests/requirements.txt "$stamp"
  fi
  export OUTLAST_PYTHON="$PWD/.venv/bin/python"
}

install_packages
install_python

say "formatting and lints"
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings

say "building"
cargo build --workspace --locked
export OUTLAST_BIN="$PWD/target/debug/outlast"

say "testing"
cargo test --workspace --locked --no-fail-fast
