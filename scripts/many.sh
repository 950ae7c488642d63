#!/usr/bin/env bash
# Measures the cost of thousands of connections: half of them push at a fixed total rate (open loop), the other half wait for jobs in long
# polls, each pair on a queue of its own; for comparison, the same rate over a few connections. Interleaved, on fresh servers with one shard
# and a core of their own. Prints a Markdown table of medians with their spread: memory per connection, and the time from a push until the
# waiting worker has the job.
#
#   scripts/many.sh [rounds] [connections] [jobs per second]        default 3, 10000, 2000
#
#   MANY_SECONDS   seconds of each run (default 8)
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
connections=${2:-10000}
rate=${3:-2000}
seconds=${MANY_SECONDS:-8}
few=16
name=many
. scripts/lib/measure.sh

run() { # what it is called, connections
    local before
    start SHARDS=1
    apart
    # Memory that a server takes for its first jobs does not count for the connections.
    bench open --rate "$rate" --seconds 1 --connections "$few" --queues $((few / 2)) --payload-bytes 100
    before=$(memory_kb)
    # A poll ends after the run: none is renewed while it is measured. All wait before the first push comes.
    bench open --rate "$rate" --seconds "$seconds" --connections "$2" --queues $(($2 / 2)) --payload-bytes 100 --window 1 \
        --pull-timeout-ms 30000 --settle-ms 1000 --keep
    # While the connections are there: as the generator has seen it before it left.
    take "$1.memory" $((($(figure rss_bytes_after) - before * 1024) / $2))
    take "$1.p50" "$(percentile push_to_receipt_us p50)"
    take "$1.p99" "$(percentile push_to_receipt_us p99)"
    take "$1.late" "$(percentile send_lag_us p99)"
    take "$1.cpu" "$(figure cpu_us_per_job)"
    stop
}

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    run few "$few"
    run many "$connections"
done

printf '%s, %s CPUs, one shard on one of them, %s rounds of %s s; %s jobs/s of 100 bytes, half of the connections push, half wait.\n' \
    "$(uname -sr)" "$(nproc)" "$rounds" "$seconds" "$rate"
printf 'Median (least–most); times in microseconds, from the intended time of the push.\n\n'
printf '| connections | push to receipt p50 | p99 | of which sent late p99 | server CPU us/job | bytes of memory per connection |\n|---|---|---|---|---|---|\n'
for row in "few|$few" "many|$connections"; do
    who=${row%%|*}
    printf '| %s | %s | %s | %s | %s | %s |\n' "${row#*|}" "$(spread "$who.p50" %.0f)" "$(spread "$who.p99" %.0f)" \
        "$(spread "$who.late" %.0f)" "$(spread "$who.cpu" %.1f)" "$([ "$who" = few ] && echo – || spread "$who.memory" %.0f)"
done
