#!/usr/bin/env bash
# Measures the floor of this machine: a server that only answers frames, and a file that is only appended to, interleaved; and how many
# bytes corq's log appends per job. Prints a Markdown table of medians with their spread.
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

jobs=200000
load=(--batch 100 --jobs $jobs --connections 4 --queues 4 --payload-bytes 100 --queue-prefix floors --keep)

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    answers=$("$bin/examples/echo" measure --shards "$(nproc)" --append "$work")
    rm -f "$work"/echo-*
    writes=$("$bin/examples/append" "$work")
    floor request.1 "$answers" 'answered, 1 in flight'
    floor request.50 "$answers" 'answered, 50 in flight'
    floor appended.1 "$answers" 'answered and appended, 1 in flight'
    floor appended.50 "$answers" 'answered and appended, 50 in flight'
    floor written.4 "$writes" 'written 4096'
    floor written.64 "$writes" 'written 65536'
    floor synced.4 "$writes" 'synced 4096'
    floor synced.64 "$writes" 'synced 65536'
    floor new.64 "$writes" 'new 65536'
    floor new.1024 "$writes" 'new 1048576'
    start
    bench push-batch "${load[@]}"
    pushed=$(metric corq_log_written_bytes_total)
    bench drain "${load[@]}" --resume
    ended=$(metric corq_log_written_bytes_total)
    stop
    take pushed "$((pushed / jobs))"
    take ended "$(((ended - pushed) / jobs))"
done

printf '%s, %s CPUs, %s rounds; an empty server on the same kind of io_uring with 4 connections; files were written before unless the row says new.\n' \
    "$(uname -sr)" "$(nproc)" "$rounds"
printf 'Median (least–most).\n\n'
printf '| floor | |\n|---|---|\n'
for row in "request.1|a request answered, 1 in flight" "request.50|a request answered, 50 in flight" \
    "appended.1|a request answered and appended, 1 in flight" "appended.50|a request answered and appended, 50 in flight" \
    "written.4|4 KB written" "written.64|64 KB written" "synced.4|4 KB synced" "synced.64|64 KB synced" \
    "new.64|64 KB written to a new file" "new.1024|1 MB written to a new file"; do
    printf '| %s, CPU us | %s |\n' "${row#*|}" "$(spread "${row%%|*}" %.2f)"
done
for row in "pushed|a job of 100 bytes in the log until it is pushed" "ended|from there until it is acknowledged"; do
    printf '| %s, bytes | %s |\n' "${row#*|}" "$(spread "${row%%|*}" %.0f)"
done
