#!/usr/bin/env bash
# Measures scaling: jobs/s and server CPU per job with 1, 2, 4 .. shards, up to the number of CPUs. Server and generator
# share the CPUs. Prints a Markdown table of medians with their spread.
#
#   scripts/shards.sh [rounds]        default 3
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
name=shards
. scripts/lib/measure.sh
load=(--connections 8 --queues 8 --payload-bytes 100)
# title | jobs | arguments
workloads=(
    "PUSH, 50 in flight|600000|push --window 50"
    "PULL + ACK, 25 in flight|300000|worker --window 25"
    "PUSHB 100|2000000|push-batch --batch 100"
    "PULLB + ACKB 100|1000000|drain --batch 100"
)
counts=()
for ((count = 1; count <= $(nproc); count *= 2)); do counts+=("$count"); done

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    for count in "${counts[@]}"; do
        for index in "${!workloads[@]}"; do
            IFS='|' read -r _ jobs arguments <<<"${workloads[$index]}"
            start "SHARDS=$count"
            # shellcheck disable=SC2086 # the arguments are words on purpose
            bench $arguments "${load[@]}" --jobs "$jobs"
            take "$index.$count.rate" "$(figure jobs_per_second)"
            take "$index.$count.cpu" "$(figure cpu_us_per_job)"
            stop
        done
    done
done

printf '| work |'
for count in "${counts[@]}"; do printf ' jobs/s, %s shards |' "$count"; done
for count in "${counts[@]}"; do printf ' CPU us, %s shards |' "$count"; done
printf '\n|---|'
for _ in "${counts[@]}"; do printf -- '---|---|'; done
printf '\n'
for index in "${!workloads[@]}"; do
    printf '| %s |' "${workloads[$index]%%|*}"
    for count in "${counts[@]}"; do printf ' %s |' "$(spread "$index.$count.rate" %.0f)"; done
    for count in "${counts[@]}"; do printf ' %s |' "$(spread "$index.$count.cpu" %.2f)"; done
    printf '\n'
done
