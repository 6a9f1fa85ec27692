# The one front door: plain `make` lists the commands.
CARGO ?= cargo
# What `make check` needs beside a C compiler, Python and Rust. A command installs what it needs before it starts.
TOOLS = postgresql pgbouncer prometheus network curl
# For the workspace of the bench: it builds beside the server, whose binary it starts.
BENCH = CARGO_TARGET_DIR="$${CARGO_TARGET_DIR:-$(CURDIR)/target}" $(CARGO)

.PHONY: help build demo test test-all versions check fmt lint deny advisories api queues chart loom fuzz fresh soak bench postgresql

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: postgresql ## 200 jobs, 4 worker processes, 2 tenants, one limit of 5, without and with leases: see it hold
	@$(CARGO) run --quiet --package pgsemaphore -- demo

build: ## the server binary, optimised, in target/release
	$(CARGO) build --release --package pgsemaphore

test: postgresql ## every test that needs only PostgreSQL, against real servers; of random worlds always the same ones
	$(CARGO) build --workspace --bins --tests
	PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED:-1} $(CARGO) test --workspace --no-fail-fast $(TEST_ARGUMENTS)

test-all: ## these, and those that need PgBouncer, Prometheus, curl, `ip` and `nft`
	@scripts/install $(TOOLS)
	@$(MAKE) --no-print-directory test TEST_ARGUMENTS="-- --include-ignored"

versions: ## the same tests against newer PostgreSQL servers
	@scripts/install $(TOOLS)
	$(CARGO) build --workspace --profile soak --bins --tests
	for version in 16 17 18; do \
		scripts/with-postgresql $$version $(CARGO) test --workspace --profile soak --no-fail-fast -- --include-ignored || exit 1; \
	done

check: ## all that must hold before a merge: what CI runs
	@scripts/install $(TOOLS)
	@$(MAKE) --no-print-directory fmt lint deny $(if $(ADVISORY_DB),advisories) api chart queues test-all

fmt: ## is everything formatted?
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path bench/Cargo.toml --check

lint: ## clippy, warnings are errors; also of holder and client without OpenTelemetry
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --package pgsemaphore --package queue-client --no-default-features --all-targets -- -D warnings

deny: ## licences, bans and sources of the dependencies
	scripts/cargo-deny --locked check bans licenses sources

advisories: ## known faults of the dependencies; ADVISORY_DB names a copy of the RustSec database, else it is fetched
	scripts/cargo-audit

api: ## whatever the API document allows, and more, asked of a holder, with and without tokens
	@scripts/install postgresql curl
	$(CARGO) build --workspace --bins
	scripts/schemathesis

queues: postgresql ## two job queues under one limit, three processes each: a plain table, and pgmq
	scripts/queues skip-locked pgmq

loom: ## every way in which threads can meet over the permits of a lease
	CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-target}/loom $(CARGO) run --release --quiet --locked \
		--manifest-path queue-client/loom/Cargo.toml

chart: postgresql ## the Helm chart: by Helm 3 and 4, by schemas of Kubernetes, and with the server itself
	$(CARGO) build --workspace --bins
	scripts/chart

fuzz: ## any bytes as messages, and as histories of a key: a minute each
	scripts/fuzz

fresh: ## `make demo` and `make test` in a bare Debian that is made for it: does the README say all that is needed?
	scripts/fresh demo test

soak: fuzz loom versions fresh ## the same tests in a release build, with far more random worlds, and every way through a small one
	@scripts/install $(TOOLS)
	PROPTEST_CASES=25600 SIM_STEPS=10000000 WORLDS=2000 WORLD_SECONDS=120 FREEZE_SECONDS=600 KEYS=20000 KEYS_USED_ONCE=100000 BUSY_KEYS=1000 \
		$(CARGO) test --workspace --profile soak --no-fail-fast -- --include-ignored
	scripts/queues
	$(CARGO) run --profile soak --package pgsemaphore-sim --bin search
	$(CARGO) run --profile soak --package pgsemaphore-sim --bin search -- 20_000_000 2 2 0 2 2 3 3 1 1 0 2
	$(CARGO) run --profile soak --package pgsemaphore-sim --bin search -- 20_000_000 2 2 0 1 2 2 2 1 1 0 3 2

bench: build ## speed and memory, beside what else a user could pick: tables in Markdown
	@scripts/install postgresql redis
	@$(BENCH) bench --locked --manifest-path bench/Cargo.toml
	$(CARGO) bench --package queue-client
	$(CARGO) bench --package pgsemaphore-tests --bench wake --bench utilisation

# The server binaries that the demo and the tests start.
postgresql:
	@scripts/install postgresql
