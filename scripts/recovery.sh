#!/usr/bin/env bash
# Measures recovery of a backlog: pushes jobs, kills the server with -9, and takes the time from the start of the program until /ready
# answers 200, with the log in the page cache and without it. Prints a Markdown table of medians with their spread.
#
#   scripts/recovery.sh [rounds] [jobs] [payload bytes]        default 3, 10000000, 100
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
jobs=${2:-10000000}
bytes=${3:-100}
name=recovery
. scripts/lib/measure.sh

now_ms() {
    date +%s%3N
}

again() { # what it is called
    local before ticks
    kill -9 "$server"
    wait "$server" 2>/dev/null || true
    [ "$1" = cold ] && { sync; echo 3 >/proc/sys/vm/drop_caches; }
    before=$(now_ms)
    start_again
    take "$1.seconds" "$(awk -v a="$before" -v b="$(now_ms)" 'BEGIN { print (b - a) / 1000 }')"
    ticks=$(awk '{ print $14 + $15 }' "/proc/$server/stat")
    take "$1.cpu" "$(awk -v t="$ticks" -v hz="$(getconf CLK_TCK)" -v j="$jobs" 'BEGIN { print t / hz * 1e6 / j }')"
}

start
bench push-batch --connections 4 --queues 4 --payload-bytes "$bytes" --queue-prefix backlog --keep --batch 1000 --jobs "$jobs" --patience 300
log_bytes=$(du -sb "$work/data" | cut -f1)
modes=(warm)
# Without that right, only what is in memory can be read.
[ -w /proc/sys/vm/drop_caches ] && modes+=(cold)
for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    for mode in "${modes[@]}"; do
        again "$mode"
    done
done

printf '%s, %s CPUs, %s rounds; %s waiting jobs of %s bytes, a log of %s MB, one shard per CPU.\n' \
    "$(uname -sr)" "$(nproc)" "$rounds" "$jobs" "$bytes" "$((log_bytes >> 20))"
printf 'Median (least–most).\n\n'
printf '| the log is | seconds until ready | seconds per GB | CPU us/job |\n|---|---|---|---|\n'
for mode in "${modes[@]}"; do
    awk -v b="$log_bytes" '{ print $1 / b * 1e9 }' "$work/$mode.seconds" >"$work/per_gb"
    printf '| %s | %s | %s | %s |\n' "$([ "$mode" = warm ] && echo "in the page cache" || echo "on the disk")" \
        "$(spread "$mode.seconds" %.2f)" "$(spread per_gb %.2f)" "$(spread "$mode.cpu" %.2f)"
done
