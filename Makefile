# `make` lists what there is to make. Every target can be run again at any time.

.DEFAULT_GOAL := help
.PHONY: help demo test test-faults test-sql faults test-valkey test-rows test-servers test-backends servers valkey redis-py sim loom fuzz twin mutants fmt lint lint-lua doc features package deny ci clean cluster-up cluster-down cluster-status check check-mutants equality test-compose test-image chaos chaos-publish pictures bench bench-handoff bench-publish

# What `get-server valkey-9.1`, `get-server redis-6.2` and `get-server redis-8.2` make.
VALKEY := target/servers/valkey-server
REDIS_6 := target/servers/redis-6.2
REDIS_8 := target/servers/redis-8.2
# What of `it` is run on Valkey as well: where servers differ. (This server of it has no TLS.)
VALKEY_MODULES := fenced_value published_lock_faults replicas mutex set_nx_mutex redlock multi_lock reentrant status
# What of `faults` is rows of the scorecard.
SCORECARD := migration failover staying
# How many tests of a program run at a time: most of them wait most of the time.
# testing/testkit/src/server_limit.rs limits the servers that they start.
# Run a suite of the command together with one of the library. Alone, it is built with fewer
# features, and so is all that it needs.
TESTS := RUST_TEST_THREADS=$(or $(THREADS),8) cargo test --all-features --no-fail-fast
# The filters of a suite, or the tests of ONLY. Where a suite has several programs, all of them run,
# even if one fails.
tests = -- $(if $(ONLY),--exact $(ONLY),$(1))
# The model of the locks, which searches all that can happen.
CHECK := cargo test --release -p rwlease-model --test worlds -- --ignored --nocapture
# The same on what the tests are built of, which is faster to build.
QUICK_CHECK := cargo test --config profile.dev.package.rwlease.opt-level=3 --config profile.dev.package.rwlease-embedded.opt-level=3 --config profile.dev.package.rwlease-model.opt-level=3 --all-features --test worlds -- --ignored --nocapture
# Its worlds that take 20 seconds and more.
LONG_WORLDS := a_cached_write_through_a_failover a_cached_read_through_a_move \
	a_reader_that_gives_up_its_upgrade a_cached_write_that_is_taken a_cached_write_that_is_revoked \
	a_cached_write_and_a_reader_and_calls_and_messages_that_get_lost a_cached_write_and_a_writer \
	revoke_and_force_release_of_holders two_writers_and_calls_messages_and_requests_that_get_lost \
	a_fair_writer_and_readers_first two_writers_and_a_reader_that_are_slow \
	a_write_that_becomes_a_read_through_a_failover a_failover_and_a_call_that_comes_late \
	a_cached_write_with_late_clocks two_writers_with_late_clocks_and_late_calls
COMPARE := CALLS=$(CALLS) cargo test --release -p rwlease-equality a_million_calls -- --ignored --nocapture

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Show the locks at work in-process; with CLUSTER=1, on a local cluster of six nodes
	$(if $(CLUSTER),@scripts/get-redis)
	cargo run --quiet -p rwlease-demo -- $(if $(CLUSTER),--cluster)

test: servers redis-py ## Run the tests of what locks promise, in under five minutes (THREADS=8 of a suite at a time, ONLY="test ..." of them)
	cargo build --quiet --all-features --examples
	@set -x; failed=0; \
	$(TESTS) --lib --bins --test backend --test corpus --test equality --test worlds --test architecture --test it --test protocol --test simulation --test observability --test examples --test cli $(call tests,) || failed=1; \
	$(TESTS) --test conformance $(call tests,embedded::) || failed=1; \
	$(TESTS) --doc $(call tests,) || failed=1; \
	exit $$failed

test-faults: faults test-compose test-valkey test-rows test-servers test-backends ## Run what is slow: faults of servers, slots that move, TLS, containers, other servers and other backends

faults: servers redis-py ## Run the slow tests on the server that `make servers` finds (ONLY="test ...")
	@set -x; failed=0; \
	$(TESTS) --test faults $(call tests,) || failed=1; \
	$(TESTS) --test conformance $(call tests,--skip embedded::) || failed=1; \
	exit $$failed

test-sql: ## Run the statements of docs/fencing.md on PostgreSQL, which must be installed, and SQLite (ROUNDS=10000)
	cd testing/sql && $(if $(ROUNDS),ROUNDS=$(ROUNDS)) cargo test --quiet --locked --target-dir ../../target/sql -- --nocapture
	cd testing/sql && cargo run --quiet --locked --target-dir ../../target/sql --example fenced_row

test-valkey: valkey redis-py ## Run the suites that depend on the server on Valkey (ONLY="test ...")
	@set -x; failed=0; \
	RWLEASE_SERVER=$(CURDIR)/$(VALKEY) $(TESTS) --test protocol --test cli $(call tests,--skip secure::tls) || failed=1; \
	RWLEASE_SERVER=$(CURDIR)/$(VALKEY) $(TESTS) --test it $(call tests,$(VALKEY_MODULES:%=%::)) || failed=1; \
	RWLEASE_SERVER=$(CURDIR)/$(VALKEY) $(TESTS) --test faults $(call tests,--skip secure:: --skip fleet:: $(SCORECARD:%=--skip %::)) || failed=1; \
	RWLEASE_SERVER=$(CURDIR)/$(VALKEY) $(TESTS) --test equality $(call tests,scripts_equal_server:: twin::) || failed=1; \
	exit $$failed

test-rows: valkey ## Run small rows of the scorecard on Valkey (ROWS=all: leave none out; BACKEND=redis: over that one; ONLY="test ...")
	RWLEASE_ROWS=$(ROWS) RWLEASE_SERVER=$(CURDIR)/$(VALKEY) $(if $(BACKEND),RWLEASE_BACKEND=$(BACKEND)) $(TESTS) --test faults $(call tests,$(SCORECARD:%=%::))

test-servers: redis-py ## Run the suites that depend on what a server can do on each server (SERVERS="redis-6.2 redis-7.0 redis-8.2 redis-8.6 valkey-9.1", ONLY="test ...")
	@ONLY="$(ONLY)" scripts/test-servers $(SERVERS)

test-backends: servers redis-py ## Run the suites of locks over each backend alone (BACKENDS="native redis fred", FEATURES=all: with all of them compiled in, ONLY="test ...")
	@FEATURES=$(FEATURES) ONLY="$(ONLY)" scripts/test-backends $(BACKENDS)

servers: ## See that there is a Redis server for the tests; install one if there is none
	@scripts/get-redis

valkey: ## Fetch a Valkey server of a fixed version into target/servers
	@scripts/get-server valkey-9.1 >/dev/null

redis-py: ## Fetch redis-py of a fixed version into target/python, for the tests that share a lock with it
	@scripts/get-redis-py

sim: ## Search for broken locks (MINUTES=10; FIRST=n begins with the run of that seed; SEED=n replays one run)
	$(if $(SEED),SEED=$(SEED)) MINUTES=$(or $(MINUTES),10) cargo test --release -p rwlease-tests --features embedded --test simulation -- --ignored --exact simulated_clients_run_for_minutes --nocapture

check: ## Search small worlds of clients and the scripts to their ends (DEEP=1: those that take long as well; QUICK=1: those of less than 20 seconds alone)
	DEEP=$(DEEP) $(if $(QUICK),$(QUICK_CHECK),$(CHECK)) model_cases:: seeded_faults:: --test-threads=2 $(if $(QUICK),$(LONG_WORLDS:%=--skip %))
	@cat target/check.md

loom: ## Search the interleavings of threads at the gate of cached locks
	RUSTFLAGS="--cfg rwlease_loom" cargo test --release --target-dir target/loom -p rwlease --lib cache::interleavings

fuzz: ## Search for bytes that break a parser (TARGET=decoder, MINUTES=10; needs cargo-fuzz and a C++ compiler)
	@mkdir -p target/fuzz/$(TARGET)
	RUSTC_BOOTSTRAP=1 cargo fuzz run -s none $(TARGET) target/fuzz/$(TARGET) fuzz/corpus/$(TARGET) -- \
		-dict=fuzz/words.dict -max_len=2048 -malloc_limit_mb=128 -timeout=10 -max_total_time=$$((60 * $(or $(MINUTES),10)))

check-mutants: ## Plant the faults of the scripts, and count those that small worlds find (ONLY=name)
	scripts/script-faults --suites worlds $(if $(ONLY),--only "$(ONLY)")

equality: servers valkey ## Compare a million random calls of the scripts on the embedded engine with Redis 6.2, 7.0 and 8.2, and with Valkey (CALLS=n, RWLEASE_SEED=n)
	@scripts/get-server redis-6.2 >/dev/null
	@scripts/get-server redis-8.2 >/dev/null
	SERVER_IS="redis 6.2." RWLEASE_SERVER=$(CURDIR)/$(REDIS_6) $(COMPARE)
	SERVER_IS="redis 7.0." $(COMPARE)
	SERVER_IS="redis 8.2." RWLEASE_SERVER=$(CURDIR)/$(REDIS_8) $(COMPARE)
	SERVER_IS="valkey 9." RWLEASE_SERVER=$(CURDIR)/$(VALKEY) $(COMPARE)

twin: servers ## Hold the fast paths of the scripts against the slow path (STEPS=500000, RWLEASE_SEED=n; ON=server: on two real servers)
	STEPS=$(or $(STEPS),500000) ON=$(ON) cargo test --release -p rwlease-equality twin::script_fast_paths_equal_the_slow_path_for_many_steps -- --ignored --nocapture

mutants: servers ## Plant faults in the scripts and, by cargo-mutants, in the source: list those that no test finds (ONLY=scripts or source, MINUTES=30 for the source)
	@MINUTES=$(MINUTES) ONLY=$(ONLY) PLACES="$(PLACES)" scripts/mutants

fmt: ## Format the code
	cargo fmt --all

lint: ## Check format, lints and words
	scripts/check-words
	scripts/check-names
	scripts/script-faults --check
	scripts/check-promises
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings

lint-lua: ## Check the scripts as servers get them (needs luacheck)
	rm -rf target/lua
	cargo run --quiet -p rwlease-cli --features rwlease/legacy -- scripts target/lua
	luacheck --quiet target/lua

doc: ## Build the documentation, look for links that lead nowhere and for figures that no result has
	scripts/check-links
	scripts/publish --check
	scripts/pictures --check
	RUSTDOCFLAGS="-D warnings" cargo doc -p rwlease --no-deps --all-features --document-private-items
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features

.PHONY: book
book: target/tools/bin/mdbook ## Build the pages of docs/ as a book, target/book
	$< build

target/tools/bin/mdbook:
	cargo install --quiet --locked --debug --no-default-features --root target/tools mdbook --version 0.4.52

features: ## Check every feature alone, and what it pulls
	scripts/check-features

package: ## Pack the four crates that are published, and build and run what was packed
	scripts/check-packages

deny: ## Check licences and sources of the dependencies (needs cargo-deny)
	cargo deny --workspace --all-features check licenses bans sources
	cargo deny --manifest-path fuzz/Cargo.toml --config deny.toml check --allow license-not-encountered licenses bans sources
	cargo deny --manifest-path testing/sql/Cargo.toml --config deny.toml check --allow license-not-encountered licenses bans sources

bench: servers ## Run the benches that have no result of this version, into docs/results/bench (BENCH="load handoff": of these alone, AGAIN=1, CLUSTER=compose: on containers)
	@CLUSTER=$(CLUSTER) BENCH="$(BENCH)" AGAIN=$(AGAIN) scripts/bench

bench-publish: ## Take the tables of docs/results/bench over into the pages
	@scripts/publish docs/performance.md docs/scale.md

bench-handoff: servers ## Measure how fast locks are handed over, beside the locks of others
	cargo bench --quiet -p rwlease-bench --bench handoff

chaos: servers ## Strike servers and clients under load, into docs/results/chaos.jsonl, as often as is missing there (ROW=..., VARIANT="...", N=..., AGAIN=1, SEED=..., SERVER=valkey, BACKEND=fred; hours)
	@$(if $(SERVER),RWLEASE_SERVER="$$(scripts/get-server $(SERVER:valkey=valkey-9.1))") $(if $(BACKEND),RWLEASE_BACKEND=$(BACKEND)) RWLEASE_BUILT="$$(scripts/version || echo unknown)" cargo run --quiet --release -p rwlease-chaos --all-features -- --run $(ROW) $(N) $(if $(VARIANT),--variant "$(VARIANT)") $(if $(SEED),--seed $(SEED)) $(if $(AGAIN),--again)

chaos-publish: ## Take the scorecard of docs/results/chaos.jsonl over into docs/reliability.md
	@scripts/publish docs/reliability.md

pictures: ## Draw the charts of docs/results into docs/images
	@scripts/pictures

test-image: servers ## Build the command statically, and an image from scratch, and run a lock in it (needs a container engine)
	scripts/test-image

test-compose: ## Run the suites for clusters against containers (needs a container engine)
	RWLEASE_COMPOSE=$(or $(RWLEASE_COMPOSE),must) cargo test --all-features --test compose

cluster-up: ## Start a cluster of six containers (IMAGE=..., PARTITION=1)
	@cluster-compose/cluster up

cluster-down: ## Remove it
	@cluster-compose/cluster down

cluster-status: ## List its nodes
	@cluster-compose/cluster status

ci: ## Everything that a change must pass
	.ci/run

clean: ## Remove what was built
	cargo clean
