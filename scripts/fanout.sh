#!/usr/bin/env bash
# Measures whether event subscribers delay pushes: the round trip of pushes at a fixed rate (open loop, with workers) without
# subscribers, with subscribers of all queues, and with subscribers of one queue each, interleaved, on fresh servers. Each job
# makes three events: pushed, pulled, completed. Prints a Markdown table of medians with their spread.
#
#   scripts/fanout.sh [rounds] [events per second] [listeners]        default 5, 50000, 100
#
#   FANOUT_SECONDS   seconds of each run (default 8)
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
events=${2:-50000}
listeners=${3:-100}
seconds=${FANOUT_SECONDS:-8}
name=fanout
. scripts/lib/measure.sh

run() { # listeners, options
    local who=$1
    shift
    start
    bench open --rate "$((events / 3))" --seconds "$seconds" --connections 8 --queues "$listeners" --payload-bytes 100 --keep "$@"
    take "$who.p50" "$(percentile push_us p50)"
    take "$who.p99" "$(percentile push_us p99)"
    take "$who.receipt" "$(percentile push_to_receipt_us p99)"
    take "$who.cpu" "$(figure cpu_us_per_job)"
    take "$who.rate" "$(figure jobs_per_second)"
    take "$who.heard" "$(sed -n "s/.*\"heard\":{[^}]*\"events\":\([0-9]*\).*/\1/p" "$work/one.json" | awk -v s="$seconds" '{ print $1 / s }')"
    take "$who.lost" "$(metric corq_events_lost_total)"
    stop
}

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    run none
    run all --listeners "$listeners"
    run one --listeners "$listeners" --listen-to-one
done

printf '%s, %s CPUs, %s rounds of %s s; %s events/s made, %s listeners.\n' \
    "$(uname -sr)" "$(nproc)" "$rounds" "$seconds" "$events" "$listeners"
printf 'Median (least–most); times in microseconds.\n\n'
printf '| listeners | push p50 | push p99 | push to receipt p99 | server CPU us/job | jobs/s | events/s heard | events lost | p99 / without |\n'
printf '|---|---|---|---|---|---|---|---|---|\n'
for row in "none|none" "all|each of all queues" "one|each of one queue"; do
    who=${row%%|*}
    paste "$work/$who.p99" "$work/none.p99" | awk '{ print $1 / $2 }' >"$work/ratio"
    printf '| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n' "${row#*|}" "$(spread "$who.p50" %.0f)" \
        "$(spread "$who.p99" %.0f)" "$(spread "$who.receipt" %.0f)" "$(spread "$who.cpu" %.2f)" \
        "$(spread "$who.rate" %.0f)" "$(spread "$who.heard" %.0f)" "$(spread "$who.lost" %.0f)" "$(spread ratio %.2f)"
done
