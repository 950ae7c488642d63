#!/bin/sh
# Runs every fuzz target for SECONDS each (default 60), or those named on the command line.
# A finding is kept in tests/fuzz/artifacts and ends the run with an error.
set -eu
cd "$(dirname "$0")/.."
seconds=${SECONDS_EACH:-${SECONDS:-60}}
[ "$seconds" -gt 0 ] || seconds=60

command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked

# The sanitizers need flags that a stable compiler takes only when told so.
export RUSTC_BOOTSTRAP=1
targets=${*:-$(cargo fuzz list --fuzz-dir tests/fuzz)}
for target in $targets; do
    FUZZ_SEEDS="$PWD/tests/fuzz/corpus/$target" \
        cargo test --quiet --package corq --test protocol -- --ignored write_fuzz_seeds
    cargo fuzz run --fuzz-dir tests/fuzz "$target" -- -max_total_time="$seconds" -max_len=4096
done
