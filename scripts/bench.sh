#!/usr/bin/env bash
# Measures the standard workloads: each with DURABILITY=written and synced, interleaved, on a
# fresh data directory, with the load generator of this repository. Prints a Markdown table of
# medians with their spread.
#
#   scripts/bench.sh [rounds]        default 5
#
#   BENCH_SCALE    per cent of the usual number of jobs (default 100)
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-5}
scale=${BENCH_SCALE:-100}
name=bench
. scripts/lib/measure.sh
# shellcheck source=scripts/lib/workloads.sh
. scripts/lib/workloads.sh

run() { # durability, index
    work_on "$2"
    take "$1.$2.cpu" "$(figure cpu_us_per_job)"
    take "$1.$2.rate" "$(figure jobs_per_second)"
    take "$1.$2.own" "$(figure generator_cpu_us_per_job)"
}

memory() { # durability
    bench push-batch --batch 1000 --jobs $((1000000 * scale / 100)) "${load[@]}"
    take "$1.memory" "$(figure rss_bytes_per_job)"
}

for round in $(seq "$rounds"); do
    for durability in written synced; do
        echo "round $round of $rounds, $durability" >&2
        for index in "${!workloads[@]}"; do
            # A fresh server for each, so that no figure depends on what ran before it.
            start "DURABILITY=$durability"
            run "$durability" "$index"
            stop
        done
        start "DURABILITY=$durability"
        memory "$durability"
        stop
    done
done

printf '%s, %s CPUs, %s rounds%s; 4 connections, 4 queues, 100-byte payloads; batches 1 in flight.\n' \
    "$(uname -sr)" "$(nproc)" "$rounds" "${BENCH_SERVER:+, the server at $BENCH_SERVER}"
printf 'Median (least–most). us = server CPU microseconds per job.\n\n'
printf '| work | written us | written jobs/s | synced us | synced jobs/s | generator us |\n'
printf '|---|---|---|---|---|---|\n'
for index in "${!workloads[@]}"; do
    printf '| %s | %s | %s | %s | %s | %s |\n' "${workloads[$index]%%|*}" \
        "$(spread "written.$index.cpu" %.2f)" "$(spread "written.$index.rate" %.0f)" \
        "$(spread "synced.$index.cpu" %.2f)" "$(spread "synced.$index.rate" %.0f)" \
        "$(spread "written.$index.own" %.2f)"
done
printf '| memory per waiting job, bytes | %s | | %s | | |\n' \
    "$(spread "written.memory" %.0f)" "$(spread "synced.memory" %.0f)"
