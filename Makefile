# The index of commands. `make` prints it.
.DEFAULT_GOAL := help
.PHONY: help run test lint fmt docs man ci bench pairs release flat http backlog reclaim recovery many fair viewers dashboard floors fanout rivals page crash fleet fleet-bench soak hang turns hostile sim torture mutants fuzz judges reference libraries web dist packages image manifests dist-twice package-test image-test

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Build and run the server, compiled for a short first build (settings are environment variables, see README)
	@scripts/setup.sh
	cargo run --profile try --bin corq -- serve

test: ## Run every test that needs no other program: units, protocol, end to end, crash, simulator
	@scripts/setup.sh
	@scripts/test.sh --workspace

lint: ## Check format and lints; warnings are errors
	@scripts/setup.sh
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

docs: ## Build the documentation of the code; warnings are errors
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items

man: ## Write the manual pages into target/man
	cargo run --bin corq -- man target/man

fmt: ## Format the code
	cargo fmt --all

ci: lint docs test ## Format, lints, documentation, tests; with `make judges` all that a change must pass

flat: ## Measure whether the cost of a job depends on the backlog: server CPU us per job, 3 rounds
	@scripts/setup.sh
	cargo build --release --workspace
	scripts/flat.sh

http: ## Compare a push over HTTP and over TCP: server CPU us per push, 5 rounds of runs of 8 s
	scripts/http.sh

backlog: ## Measure a backlog larger than memory: MB, jobs/s, CPU us per job (JOBS, default 20000000, of PAYLOAD_BYTES, default 1000)
	@scripts/setup.sh
	cargo build --release --workspace
	scripts/backlog.sh $${JOBS:-20000000} $${PAYLOAD_BYTES:-1000}

reclaim: ## Measure whether compaction delays pushes: round trips in us, 5 rounds of runs of 8 s
	@scripts/setup.sh
	scripts/reclaim.sh

recovery: ## Measure a start over JOBS waiting jobs (default 10000000): seconds until ready, 3 rounds
	@scripts/setup.sh
	scripts/recovery.sh 3 $${JOBS:-10000000}

many: ## Measure 10,000 connections, half of them waiting: bytes per connection, wake-up in us, 3 rounds of runs of 8 s
	@scripts/setup.sh
	scripts/many.sh

floors: ## Measure the floor of this machine, an empty server and bare writes: CPU us each, 3 rounds
	@scripts/setup.sh
	scripts/floors.sh

viewers: ## Measure what 100 viewers and searches through JOBS waiting jobs (default 10000000) cost: CPU and round trips, 3 rounds of runs of 6 s
	@scripts/setup.sh
	scripts/viewers.sh 3 $${JOBS:-10000000}

dashboard: ## Measure the dashboard: its lists, first paint, long tasks, memory after ten minutes, and what ten of them cost a shard at 100,000 jobs/s, by pairs of runs
	@scripts/setup.sh
	scripts/dashboard.sh

fair: ## Measure whether a flood, a hot queue or jobs of 10 MB delay other clients: round trips in us, 3 rounds of runs of 6 s
	@scripts/setup.sh
	scripts/fair.sh

fanout: ## Measure whether event subscribers delay pushes: round trips in us, 5 rounds of runs of 8 s
	scripts/fanout.sh

release: ## Build optimised binaries in target/release, and the server with profile-guided optimisation: target/pgo/corq
	@scripts/setup.sh
	cargo build --release --workspace
	scripts/pgo.sh

dist: ## Build the static program with manual pages, completions, licences and sums: target/dist (scripts/dist.sh aarch64 for arm64)
	@scripts/setup.sh
	scripts/dist.sh

packages: ## Build what `make dist` builds, and of it a .deb and an .rpm (needs dpkg-deb and rpmbuild)
	@scripts/setup.sh
	scripts/packages.sh

image: ## Build the container image of the program of `make dist` (needs docker, podman or buildah)
	@scripts/setup.sh
	scripts/image.sh

dist-twice: ## Build everything that is given away twice, in different directories, and compare every byte
	scripts/dist-twice.sh

package-test: ## Install, watch with Prometheus, upgrade under load, remove and purge the packages in a root of their own (needs root, after `make packages`)
	scripts/package-test.sh

image-test: ## Run the image as it is meant to be run: read-only, without capabilities, with the seccomp profile (needs podman)
	scripts/image-test.sh

manifests: ## Check the Helm chart and the Kubernetes manifests without a cluster (needs helm or Go, and Python)
	scripts/manifests.sh

bench: ## Measure the standing figures: server CPU us per job, jobs/s (a quiet machine, about ten minutes)
	scripts/bench.sh

pairs: ## Compare the server CPU per job with that of BASE=commit, or of another server AGAINST=path, in short interleaved pairs until the ratio is known to 3 %
	@scripts/setup.sh
	BASE="$(BASE)" scripts/pairs.sh $(AGAINST)

libraries: ## Count the instructions of hand-written code and of libraries that could replace it (needs valgrind)
	cargo build --quiet --release --manifest-path bench/libraries/Cargo.toml --target-dir target/libraries
	target/libraries/release/libraries

rivals: ## Measure corq and other job queues side by side (ROUNDS, default 3; installed below target/)
	@scripts/setup.sh
	cargo test --quiet --manifest-path bench/rivals/client/Cargo.toml --target-dir target/rivals/build
	python3 -m unittest discover -q -s bench/rivals
	bench/rivals/run --rounds $${ROUNDS:-3} --json target/rivals/last.json

page: ## Measure everything and write docs/benchmarks.md (ROUNDS, default 3; an hour on a quiet machine)
	@scripts/setup.sh
	scripts/page.sh $${ROUNDS:-3}

crash: ## Kill the server 20 times per setting under load and reconcile every job
	CORQ_CRASH_ROUNDS=20 cargo test --profile quick -p corq-tests --test system crash::

fleet: ## Play each fault of a fleet and its database FLEET_ROUNDS times (default 20) under load; reconcile every job (needs PostgreSQL)
	CORQ_FLEET_ROUNDS=$${FLEET_ROUNDS:-20} cargo test --profile quick -p corq-tests --test system crash::fleet -- --nocapture

fleet-bench: ## Measure a fleet: lives, latency, failover, replay, beside one server and a row per job (PARTS, FLEET_BENCH_ROUNDS, default 3; ten minutes)
	@scripts/setup.sh
	scripts/fleet.sh $(PARTS)

soak: ## An hour (SOAK_SECONDS) of load, kills, stops, full disks and a million connections; reconcile every job
	CORQ_SOAK_SECONDS=$${SOAK_SECONDS:-3600} cargo test --profile quick -p corq-tests --test system faults_of_every_kind -- --nocapture
	CORQ_CONNECTIONS=1000000 cargo test --profile quick -p corq-tests --test alone come_and_go -- --nocapture

hang: ## Load two shards for five minutes; fails on a single late reply
	CORQ_HANG_SECONDS=300 cargo test --profile quick -p corq-tests --test alone hang:: -- --nocapture

turns: ## Measure the longest turn of every command at its bounds; fails above 5 ms, of a batch 20 (TURNS_ONLY=PUSH,Drain; a quiet machine)
	@scripts/setup.sh
	scripts/turns.sh

hostile: ## Attack the HTTP port with 10,000 slow and malicious clients, measure the cost for others (a quiet machine)
	CORQ_HOSTILE_CONNECTIONS=10000 CORQ_HOSTILE_SPEED=1 cargo test --profile quick -p corq-tests --test alone hostile:: -- --nocapture

sim: ## Simulate SEEDS schedules with crashes (default 20000), or replay one with its trace (SEED=42)
ifdef SEED
	@scripts/setup.sh
	CORQ_SIM_SEED=$(SEED) cargo test -p corq-sim --test sim every_seed -- --nocapture
else
	CORQ_SIM_SEEDS=$${SEEDS:-20000} cargo test --profile quick -p corq-sim --test sim
endif

torture: ## Random valid commands of every kind with kills and restarts, an hour (TORTURE_SECONDS), all results compared
	scripts/torture.sh

mutants: ## Mutation tests of the engine: many hours for all of it (FILES="lease/ack.rs dedup.rs", MUTANTS_SHARD=k/n)
	scripts/mutants.sh $${FILES:-}

fuzz: ## Fuzz every decoder for a minute (FUZZ_SECONDS)
	scripts/fuzz.sh

JUDGE = CORQ_BIN=$${CORQ_BIN:-$${CARGO_TARGET_DIR:-$(CURDIR)/target}/debug/corq-tested} scripts/test.sh --manifest-path tests/clients/Cargo.toml --target-dir $${CARGO_TARGET_DIR:-target}
judges: ## Run other people's programs against the server: official clients, browser, schemathesis, S3 (WHOLE=1: on 1 and 2 shards, more examples)
	@scripts/setup.sh
	cargo test --quiet --workspace --test system --no-run
	cargo fmt --check --manifest-path tests/clients/Cargo.toml
ifdef WHOLE
	CORQ_TEST_SHARDS=1 $(JUDGE)
	CORQ_TEST_SHARDS=2 CORQ_JUDGE_EXAMPLES=100 CORQ_TEST_BROWSER=on $(JUDGE)
else
	$(JUDGE)
endif

web: ## Check and build the dashboard: web/dist from web/src (needs Node.js)
	scripts/web.sh

reference: ## Run the same client scripts against the reference server of npm; docs/compatibility.md lists its failures
	scripts/reference.sh
