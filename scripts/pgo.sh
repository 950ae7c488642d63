#!/usr/bin/env bash
# Builds the server with profile-guided optimisation: with counters, which `scripts/bench.sh` fills with the standard workloads,
# and again with this profile: target/pgo/corq. Needs rustup, for the tool that reads the counters.
#
#   scripts/pgo.sh
set -euo pipefail
cd "$(dirname "$0")/.."
place=target/pgo
rm -rf "$place/counts" "$place/counts.profdata"
mkdir -p "$place/counts"
rustup --quiet component add llvm-tools >&2
host=$(rustc -vV | sed -n 's/^host: //p')
reader=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata

echo "building with counters" >&2
RUSTFLAGS="-Cprofile-generate=$PWD/$place/counts" cargo build --quiet --release -p corq --bin corq --target-dir "$place/counting" --target "$host"
BENCH_SERVER=$place/counting/$host/release/corq BENCH_SCALE=30 scripts/bench.sh 1 >/dev/null

"$reader" merge --output "$place/counts.profdata" "$place/counts"
echo "building by what was counted" >&2
RUSTFLAGS="-Cprofile-use=$PWD/$place/counts.profdata" cargo build --quiet --release -p corq --bin corq --target-dir "$place/counted" --target "$host"
install "$place/counted/$host/release/corq" "$place/corq"
echo "$place/corq"
