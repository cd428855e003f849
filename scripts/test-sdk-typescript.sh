#!/usr/bin/env bash
# Tests the TypeScript SDK against the real server: types, format, then every suite of sdk/typescript/test, on the Node of this
# machine and on the runtimes of sdk/typescript/test/runtimes. OUTLAST_BIN names the server's binary (target/debug/outlast if
# unset); OUTLAST_SOAK=1 adds volume. Arguments are names of suites: `worker faults`.
set -euo pipefail
cd "$(dirname "$0")/.."

export OUTLAST_BIN="${OUTLAST_BIN:-$PWD/target/debug/outlast}"
if [ ! -x "$OUTLAST_BIN" ]; then
  echo "no server at $OUTLAST_BIN: build it with cargo build -p outlast, or set OUTLAST_BIN" >&2
  exit 2
fi

# Node has certificates of its own; behind a proxy those of the machine are the ones that count.
certificates=/etc/ssl/certs/ca-certificates.crt
if [ -z "${NODE_EXTRA_CA_CERTS:-}" ] && [ -f "$certificates" ]; then export NODE_EXTRA_CA_CERTS="$certificates"; fi

package=sdk/typescript
for folder in "$package" "$package/test/runtimes"; do
  stamp=$folder/node_modules/.package-lock.json
  if [ ! -f "$stamp" ] || [ "$folder/package-lock.json" -nt "$stamp" ]; then
    npm ci --prefix "$folder" --no-audit --no-fund --loglevel=error
    touch "$stamp"
  fi
done

cd "$package"
failed=0
node scripts/build.mjs || failed=1
node_modules/.bin/prettier --check --log-level warn . || failed=1
suites=()
for name in "${@:-*}"; do suites+=(test/$name.test.mjs); done
# Two suites at a time: most of them wait for clocks and servers.
node --test --test-concurrency=2 --test-reporter=spec "${suites[@]}" || failed=1
if [ "$failed" = 0 ]; then
  echo "the TypeScript SDK: every check passed"
else
  echo "the TypeScript SDK: there are failures" >&2
fi
exit $failed
