#!/usr/bin/env bash
# Compares this build with another server on the standard workloads: pairs of runs, each on a fresh data directory, the order changing
# from pair to pair, so that what changes on the machine meanwhile concerns both. Prints a Markdown table: the server CPU per job of
# both, and the ratio within the pairs.
#
#   scripts/pairs.sh other-server [pairs]        default 5
#
#   BENCH_SCALE       per cent of the usual number of jobs (default 100)
#   PAIRS_DURABILITY  written or synced (default "written synced")
set -euo pipefail
cd "$(dirname "$0")/.."

other=$(realpath "${1:?the server to compare with}")
pairs=${2:-5}
scale=${BENCH_SCALE:-100}
name=pairs
. scripts/lib/measure.sh
# shellcheck source=scripts/lib/workloads.sh
. scripts/lib/workloads.sh
own=${BENCH_SERVER:-$bin/corq}
read -ra durabilities <<<"${PAIRS_DURABILITY:-written synced}"

run() { # this or other, durability, index
    BENCH_SERVER=$own
    [ "$1" = this ] || BENCH_SERVER=$other
    # A fresh server for each, so that no figure depends on what ran before it.
    start "DURABILITY=$2"
    work_on "$3"
    stop
    take "$2.$3.$1.cpu" "$(figure cpu_us_per_job)"
    take "$2.$3.$1.rate" "$(figure jobs_per_second)"
}

for pair in $(seq "$pairs"); do
    order=(this other)
    [ $((pair % 2)) -eq 1 ] || order=(other this)
    for durability in "${durabilities[@]}"; do
        echo "pair $pair of $pairs, $durability" >&2
        for index in "${!workloads[@]}"; do
            for which in "${order[@]}"; do run "$which" "$durability" "$index"; done
        done
    done
done

printf '%s, %s CPUs, %s pairs; this server and %s; 4 connections, 4 queues, 100-byte payloads.\n' \
    "$(uname -sr)" "$(nproc)" "$pairs" "$("$other" --version)"
printf 'Median (least–most). us = server CPU microseconds per job; ratios are this / other within a pair.\n\n'
printf '| work | this us | other us | ratio of us | ratio of jobs/s |\n|---|---|---|---|---|\n'
for durability in "${durabilities[@]}"; do
    for index in "${!workloads[@]}"; do
        of=$durability.$index
        for what in cpu rate; do
            paste "$work/$of.this.$what" "$work/$of.other.$what" | awk '{ print $1 / $2 }' >"$work/$of.$what"
        done
        printf '| %s, %s | %s | %s | %s | %s |\n' "${workloads[$index]%%|*}" "$durability" "$(spread "$of.this.cpu" %.2f)" \
            "$(spread "$of.other.cpu" %.2f)" "$(spread "$of.cpu" %.3f)" "$(spread "$of.rate" %.3f)"
    done
done
