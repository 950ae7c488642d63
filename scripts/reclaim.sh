#!/usr/bin/env bash
# Measures whether compaction delays pushes: the round trip of pushes at a fixed rate (open loop, with workers) during compaction,
# and while there is nothing to compact, interleaved, on fresh servers. Before that, jobs of two kinds are pushed alternately; for the runs
# with compaction, one kind is removed, so that half of every part of the log is live. The server has one shard and a core of its own.
# Prints a Markdown table of medians with their spread.
#
#   scripts/reclaim.sh [rounds] [jobs per second]        default 5, 10000
#
#   RECLAIM_SECONDS   seconds of each run (default 8)
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
rate=${2:-10000}
seconds=${RECLAIM_SECONDS:-8}
name=reclaim
. scripts/lib/measure.sh
jobs=400000
kind=(--connections 2 --queues 4 --payload-bytes 1000 --keep --batch 100)

run() { # what it is called, whether one kind goes
    start SHARDS=1
    # Both kinds are pushed at one pace, so that they lie in turns.
    generator=()
    "$bin/corq-bench" push-batch "${kind[@]}" --jobs "$jobs" --queue-prefix gone --port "$tcp" --json >"$work/gone.json" &
    bench push-batch "${kind[@]}" --jobs "$jobs" --queue-prefix held
    wait $!
    if [ "$2" = goes ]; then
        for queue in 0 1 2 3; do
            "$bin/corq" queue obliterate "gone-$queue" --yes --port "$tcp" >"$work/gone.json"
        done
    fi
    apart
    local before
    before=$(metric corq_log_rewritten_bytes_total)
    bench open --rate "$rate" --seconds "$seconds" --connections 8 --queues 8 --payload-bytes 1000 --keep
    take "$1.rewritten" $((($(metric corq_log_rewritten_bytes_total) - before) >> 20))
    take "$1.p50" "$(percentile push_us p50)"
    take "$1.p99" "$(percentile push_us p99)"
    take "$1.cpu" "$(figure cpu_us_per_job)"
    stop
}

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    run without stays
    run with goes
done

printf '%s, %s CPUs, one shard on one of them, %s rounds of %s s; %s jobs/s of 1000 bytes beside %s waiting jobs.\n' \
    "$(uname -sr)" "$(nproc)" "$rounds" "$seconds" "$rate" "$jobs"
printf 'Median (least–most); times in microseconds.\n\n'
printf '| reclaim | push p50 | push p99 | server CPU us/job | MB written again meanwhile | p99 / without |\n|---|---|---|---|---|---|\n'
for who in without with; do
    paste "$work/$who.p99" "$work/without.p99" | awk '{ print $1 / $2 }' >"$work/ratio"
    printf '| %s | %s | %s | %s | %s | %s |\n' "$who" "$(spread "$who.p50" %.0f)" "$(spread "$who.p99" %.0f)" \
        "$(spread "$who.cpu" %.2f)" "$(spread "$who.rewritten" %.0f)" "$(spread ratio %.2f)"
done
