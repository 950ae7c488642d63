#!/usr/bin/env bash
# What nothing can be cheaper than here: a server that only answers frames, and a file that is only appended to, in turns. Prints a
# Markdown table of medians with their spread.
#
#   scripts/floors.sh [rounds]        default 3
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
name=floors
. scripts/lib/measure.sh
cargo build --quiet --release -p corq-io --examples

floor() { # what was measured, what it printed: the CPU of one
    take "$1" "$(printf '%s\n' "$2" | sed -n "s/^$3.*: \([0-9.]*\) us of .*CPU.*/\1/p")"
}

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    answers=$("$bin/examples/echo" measure --shards "$(nproc)")
    writes=$("$bin/examples/append" "$work")
    floor request.1 "$answers" '1 in flight'
    floor request.50 "$answers" '50 in flight'
    floor written.4 "$writes" 'written 4096'
    floor written.64 "$writes" 'written 65536'
    floor synced.4 "$writes" 'synced 4096'
    floor synced.64 "$writes" 'synced 65536'
done

printf '%s, %s CPUs, %s rounds; an empty server on the same kind of ring with 4 connections, a file that was written before.\n' \
    "$(uname -sr)" "$(nproc)" "$rounds"
printf 'Median (least–most) of the CPU time of one, in microseconds.\n\n'
printf '| floor | CPU us |\n|---|---|\n'
for row in "request.1|a request answered, 1 in flight" "request.50|a request answered, 50 in flight" \
    "written.4|4 KB written" "written.64|64 KB written" "synced.4|4 KB synced" "synced.64|64 KB synced"; do
    printf '| %s | %s |\n' "${row#*|}" "$(spread "${row%%|*}" %.2f)"
done
