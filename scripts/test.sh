#!/usr/bin/env bash
# Runs every test on a machine where nothing was prepared: installs what is missing (packages of Debian, Python and npm),
# builds, tests on every engine, and leaves nothing running. Needs Rust, Node and Python.
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
redis-server redis-server
pgbouncer pgbouncer
nginx nginx-light
faketime faketime
openssl openssl
chromium chromium
LIST
  # Debian keeps the server's programs off the path, by version.
  compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || missing+=(postgresql)
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  # Consumers in these languages are tried in `make soak` only.
  if [ "${OUTLAST_SOAK:-}" = 1 ]; then
    command -v go >/dev/null 2>&1 || missing+=(golang-go)
    command -v ruby >/dev/null 2>&1 || missing+=(ruby)
  fi
  [ ${#missing[@]} -eq 0 ] && return
  say "installing ${missing[*]}"
  as_root apt-get update -qq
  without_services as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# Some of the packages start a service when they are installed; the tests start their own. Debian asks this file first.
without_services() {
  local policy=/usr/sbin/policy-rc.d
  if [ -e "$policy" ]; then
    "$@"
    return
  fi
  printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
  as_root chmod +x "$policy"
  local status=0
  "$@" || status=$?
  as_root rm -f "$policy"
  return $status
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

install_npm() {
  local stamp=tests/node_modules/.package-lock.json
  if [ ! -f "$stamp" ] || [ tests/package-lock.json -nt "$stamp" ]; then
    say "installing the packages of npm"
    # Node has certificates of its own; behind a proxy those of the machine are the ones that count.
    local certificates=/etc/ssl/certs/ca-certificates.crt
    if [ -z "${NODE_EXTRA_CA_CERTS:-}" ] && [ -f "$certificates" ]; then export NODE_EXTRA_CA_CERTS="$certificates"; fi
    npm ci --prefix tests --no-audit --no-fund --loglevel=error
    touch "$stamp"
  fi
}

install_packages
install_python
install_npm

say "formatting and lints"
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings

say "building"
cargo build --workspace --locked
export OUTLAST_BIN="$PWD/target/debug/outlast"

failed=0
# Most of the tests wait for clocks and servers, so more of them than there are processors run at once.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(( $(nproc) * 2 ))}

say "testing"
cargo test --workspace --locked --no-fail-fast || failed=1

# The same suite again on the other engines. Tests of one engine have its name and are skipped here.
elsewhere=(--skip embedded:: --skip cluster::)
# The form of requests and answers does not depend on how many nodes there are: once per store is enough.
form=(--skip bad_input:: --skip fuzz:: --skip openapi:: --skip http_edges:: --skip signatures::)
# Long jobs, once behind a reverse proxy: all of it holds there too.
long=(leases:: cancel:: races:: time_limits:: polls:: outages:: zombies:: work:: streams:: tokens:: sockets:: results::
  worker:: examples::)
say "testing end to end: postgres"
OUTLAST_ENGINE=postgres cargo test --workspace --locked --test e2e -- "${elsewhere[@]}" "${long[@]/#/--skip=}" || failed=1
say "testing end to end: postgres, behind nginx"
OUTLAST_ENGINE=postgres OUTLAST_FRONT=nginx cargo test --workspace --locked --test e2e -- "${elsewhere[@]}" "${long[@]}" || failed=1
say "testing end to end: cluster"
OUTLAST_ENGINE=cluster cargo test --workspace --locked --test e2e -- "${elsewhere[@]}" "${form[@]}" || failed=1

exit $failed
