#!/usr/bin/env bash
# Runs every test on a machine where nothing was prepared: installs what is missing (packages of Debian, Python and npm),
# builds, tests on every engine, and leaves nothing running. Needs Rust, Node and Python.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

# Runs a command as a phase of the table that ends the run: minutes by the clock, and processor minutes of the command and all
# it started. On two cores a phase that waits more than it works has less than two processor minutes a minute.
phases=()
phase() {
  local name=$1 status=0 TIMEFORMAT='%R %U %S'
  shift
  say "$name"
  # Only the line of `time` goes to the file; the command keeps its own standard error.
  { time "$@" 2>&4 || status=$?; } 4>&2 2>"$scratch/time"
  phases+=("$name|$(tail -n 1 "$scratch/time")")
  return $status
}

show_phases() {
  printf '\n%-52s %8s %10s\n' 'phase' 'minutes' 'processor'
  printf '%s\n' "${phases[@]}" | awk -F '[| ]' '{
    real = $(NF-2); used = $(NF-1) + $NF; sub(/\|.*/, ""); total += real; all += used
    printf "%-52s %8.1f %10.1f\n", $0, real / 60, used / 60
  } END { printf "%-52s %8.1f %10.1f\n", "all", total / 60, all / 60 }'
}
scratch=$(mktemp -d)
trap 'show_phases; rm -rf "$scratch"' EXIT

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
phases+=("installing what is missing|$SECONDS 0 0")

phase "formatting" cargo fmt --all --check
phase "lints" cargo clippy --workspace --all-targets --locked -- -D warnings
phase "building" cargo build --workspace --all-targets --locked
export OUTLAST_BIN="$PWD/target/debug/outlast"

failed=0
# Most of the tests wait for clocks and servers, so more of them than there are processors run at once.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(( $(nproc) * 2 ))}

run() { phase "$@" || failed=1; }

suite() {
  local name=$1
  shift
  run "$name" cargo test --workspace --locked --no-fail-fast "$@"
}

suite "unit tests" --lib --bins
# Every suite that the manifest names.
for test in $(awk -F '"' '/^\[\[test\]\]/ { named = 1 } named && /^name/ { print $2; named = 0 }' tests/Cargo.toml); do
  suite "$test" --test "$test"
done

# The end-to-end suite again on the other engines. Tests of one engine only have it in their name and are left out here.
elsewhere=(--skip embedded:: --skip cluster::)
# The form of requests and answers does not depend on how many nodes there are: once per store is enough.
form=(--skip bad_input:: --skip fuzz:: --skip openapi:: --skip http_edges:: --skip signatures::)
# Long jobs, once behind a reverse proxy: all of it holds there too.
long=(leases:: cancel:: races:: time_limits:: polls:: outages:: zombies:: work:: streams:: tokens:: sockets:: results::
  worker:: examples::)
export OUTLAST_ENGINE=postgres
suite "e2e on PostgreSQL" --test e2e -- "${elsewhere[@]}" "${long[@]/#/--skip=}"
OUTLAST_FRONT=nginx suite "e2e on PostgreSQL behind nginx" --test e2e -- "${elsewhere[@]}" "${long[@]}"
export OUTLAST_ENGINE=cluster
suite "e2e on three nodes" --test e2e -- "${elsewhere[@]}" "${form[@]}"
unset OUTLAST_ENGINE

run "SDK for Python" scripts/test-sdk-python.sh
run "SDK for TypeScript" scripts/test-sdk-typescript.sh

exit $failed
