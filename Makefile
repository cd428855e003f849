# The commands of this repository. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash

.PHONY: help run test check bench soak gen dist

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-6s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## build and start the service here, with the URL, the key and a first curl
	cargo build --release --locked -p outlast
	./target/release/outlast dev

test: ## install what is missing, run every test, stop what was started
	./scripts/test.sh

check: ## formatting, lints and the tidy rules, without running the suites
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --locked -p outlast-tests --test tidy
	@if command -v cargo-deny >/dev/null; then cargo deny --offline check bans licenses sources; else echo "cargo-deny is not installed: licences and bans were not checked"; fi

bench: ## measure speed and memory, printed as ratios to limits of the same run
	cargo build --release --locked -p outlast -p outlast-benches
	./target/release/outlast-bench --server target/release/outlast $(BENCH)
	OUTLAST_BIN=$(CURDIR)/target/release/outlast ./scripts/bench-sdk-python.sh
	npm ci --prefix sdk/typescript --no-audit --no-fund --loglevel=error && npm run --prefix sdk/typescript build
	OUTLAST_BIN=$(CURDIR)/target/release/outlast node sdk/typescript/bench/run.mjs

soak: ## the crash, power and simulation rigs at volume (hours)
	OUTLAST_SOAK=1 ./scripts/test.sh

gen: ## rewrite the generated files (docs/reference/STATES.md, CLI.md and openapi.json, the plans of PostgreSQL, the wire types of the SDKs)
	OUTLAST_GEN=1 cargo test --locked -p outlast generated_cli_reference
	OUTLAST_GEN=1 cargo test --locked -p outlast-tests --test tidy generated
	OUTLAST_GEN=1 cargo test --locked -p outlast-tests --test e2e generated_openapi
	OUTLAST_GEN=1 cargo test --locked -p outlast-tests --test contract plans
	npm ci --prefix sdk/typescript --no-audit --no-fund --loglevel=error && npm run --prefix sdk/typescript gen
	python3 sdk/python/scripts/make_wire.py
	python3 sdk/python/scripts/make_sync.py

dist: ## make the archive, the Debian package and the Docker context, with SHA-256 sums, in target/dist
	./scripts/dist.sh
