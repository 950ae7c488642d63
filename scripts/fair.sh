#!/usr/bin/env bash
# Measures fairness: the round trip of pushes at a fixed rate (open loop, with workers) alone, beside a flooding connection, beside a hot
# queue, and beside a client with jobs of 10 MB, interleaved, on fresh servers. The server has one shard and
# a core of its own. Prints a Markdown table of medians with their spread.
#
#   scripts/fair.sh [rounds] [jobs per second]        default 3, 2000
#
#   FAIR_SECONDS   seconds of each run (default 6)
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
rate=${2:-2000}
seconds=${FAIR_SECONDS:-6}
name=fair
. scripts/lib/measure.sh

run() { # what it is called, what the other client does
    local who=$1 other=
    shift
    start SHARDS=1
    # The measured client goes before the others on the core that they share.
    apart
    if [ "$#" -gt 0 ]; then
        taskset -c 1 nice -n 10 "$bin/corq-bench" "$@" --seconds $((seconds + 3)) --queue-prefix other --keep --port "$tcp" --json >"$work/other.json" &
        other=$!
        sleep 1
    fi
    bench open --rate "$rate" --seconds "$seconds" --connections 8 --queues 4 --payload-bytes 100 --keep
    if [ -n "$other" ]; then
        wait "$other" || { cat "$work/other.json" >&2; exit 1; }
        take "$who.rate" "$(sed -n 's/.*"jobs_per_second":\([0-9.]*\).*/\1/p' "$work/other.json")"
    else
        take "$who.rate" 0
    fi
    take "$who.p50" "$(percentile push_us p50)"
    take "$who.p99" "$(percentile push_us p99)"
    take "$who.receipt" "$(percentile push_to_receipt_us p99)"
    stop
}

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    run alone
    run flood push --connections 1 --queues 1 --window 1000 --payload-bytes 100
    run hot mixed --connections 8 --queues 1 --window 25 --payload-bytes 100
    run large mixed --connections 2 --queues 1 --window 1 --payload-bytes 10000000
done

printf '%s, %s CPUs, one shard on one of them, %s rounds of %s s; %s jobs/s of 100 bytes are measured.\n' \
    "$(uname -sr)" "$(nproc)" "$rounds" "$seconds" "$rate"
printf 'Median (least–most); times in microseconds.\n\n'
printf '| beside | its jobs/s | push p50 | push p99 | push to receipt p99 | p99 / alone |\n|---|---|---|---|---|---|\n'
for row in "alone|nothing" "flood|a connection that floods" "hot|a hot queue, 8 connections" "large|jobs of 10 MB"; do
    who=${row%%|*}
    paste "$work/$who.p99" "$work/alone.p99" | awk '{ print $1 / $2 }' >"$work/ratio"
    printf '| %s | %s | %s | %s | %s | %s |\n' "${row#*|}" "$(spread "$who.rate" %.0f)" "$(spread "$who.p50" %.0f)" \
        "$(spread "$who.p99" %.0f)" "$(spread "$who.receipt" %.0f)" "$(spread ratio %.2f)"
done
