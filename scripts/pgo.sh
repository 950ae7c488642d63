#!/usr/bin/env bash
# The server compiled for the way it is used: builds it with counters, has the load generator drive it through the workloads of the
# standing figures, and builds it again by what was counted: target/pgo/corq. Needs rustup, for the tool that reads the counts.
#
#   scripts/pgo.sh
set -euo pipefail
cd "$(dirname "$0")/.."
name=pgo
place=target/pgo
rm -rf "$place/counts" "$place/counts.profdata"
mkdir -p "$place/counts"
rustup component add llvm-tools >/dev/null 2>&1
host=$(rustc -vV | sed -n 's/^host: //p')
reader=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata

. scripts/lib/measure.sh

echo "building with counters" >&2
RUSTFLAGS="-Cprofile-generate=$PWD/$place/counts" cargo build --quiet --release -p corq --bin corq --target-dir "$place/counting" --target "$host"
server_bin=$PWD/$place/counting/$host/release/corq

load=(--connections 4 --queues 4 --payload-bytes 100)
workloads=(
    "20000|push --window 1"
    "20000|worker --window 1"
    "200000|push --window 50"
    "100000|worker --window 25"
    "500000|push-batch --batch 100"
    "300000|drain --batch 100"
    "500000|push-batch --batch 1000"
    "300000|drain --batch 1000"
)
for durability in written synced; do
    for workload in "${workloads[@]}"; do
        IFS='|' read -r jobs arguments <<<"$workload"
        start "DURABILITY=$durability"
        # shellcheck disable=SC2086 # the arguments are words on purpose
        bench $arguments --jobs "$jobs" "${load[@]}"
        stop
    done
done

"$reader" merge --output "$place/counts.profdata" "$place/counts"
echo "building by what was counted" >&2
RUSTFLAGS="-Cprofile-use=$PWD/$place/counts.profdata" cargo build --quiet --release -p corq --bin corq --target-dir "$place/counted" --target "$host"
install "$place/counted/$host/release/corq" "$place/corq"
echo "$place/corq"
