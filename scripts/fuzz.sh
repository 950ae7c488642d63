#!/bin/sh
# Runs every fuzz target for FUZZ_SECONDS (default 60), or those named on the command line.
# A finding is kept in tests/fuzz/artifacts and ends the run with an error.
set -eu
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-60}

command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked

# One frame per command to begin with, made from the table of commands.
FUZZ_SEEDS="$PWD/tests/fuzz/corpus/decoder" \
    cargo test --quiet --package corq-tests --test protocol -- --ignored write_fuzz_seeds

# The program that the target `server` speaks to; with its checks, which a release lacks.
cargo build --bin corq
CORQ_BIN="${CARGO_TARGET_DIR:-$PWD/target}/debug/corq"
export CORQ_BIN

# The sanitizers need flags that a stable compiler takes only when told so.
export RUSTC_BOOTSTRAP=1
for target in ${*:-$(cargo fuzz list --fuzz-dir tests/fuzz)}; do
    cargo fuzz run --fuzz-dir tests/fuzz "$target" -- -max_total_time="$seconds" -max_len=4096
done
