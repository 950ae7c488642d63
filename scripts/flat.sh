#!/usr/bin/env bash
# Measures whether the cost of a job depends on the backlog: server CPU per job with 0, 100,000 and 1,000,000
# other jobs waiting, in order of arrival, with random priorities and with random delays. Prints a Markdown table of
# medians with their spread.
#
#   scripts/flat.sh [rounds]        default 3
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
name=flat
. scripts/lib/measure.sh
load=(--batch 100 --connections 4 --queues 4 --payload-bytes 100)

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    for others in 0 100000 1000000; do
        for order in fifo priorities; do
            [ $order = fifo ] && options=() || options=(--priorities 1000000)
            start
            bench push-batch "${load[@]}" --jobs 400000 --prefill $others "${options[@]}"
            take "$order.push.$others" "$(figure cpu_us_per_job)"
            stop
            start
            bench drain "${load[@]}" --jobs 400000 --prefill $((others + 400000)) "${options[@]}"
            take "$order.drain.$others" "$(figure cpu_us_per_job)"
            stop
        done
        start
        if [ $others -gt 0 ]; then
            bench push-batch "${load[@]}" --jobs $others --delay-ms 3600000 --queue-prefix flat --keep
        fi
        bench drain "${load[@]}" --jobs 400000 --queue-prefix flat --use-existing --keep
        take "delays.drain.$others" "$(figure cpu_us_per_job)"
        bench push-batch "${load[@]}" --jobs 400000 --delay-ms 3600000
        take "delays.push.$others" "$(figure cpu_us_per_job)"
        stop
    done
done

printf '| server CPU us per job, batches of 100 | 0 others | 100,000 others | 1,000,000 others |\n|---|---|---|---|\n'
for row in "fifo.push|PUSHB, first in first out" "fifo.drain|PULLB + ACKB, first in first out" \
    "priorities.push|PUSHB, random priorities" "priorities.drain|PULLB + ACKB, random priorities" \
    "delays.push|PUSHB, random delays" "delays.drain|PULLB + ACKB beside delayed jobs"; do
    file=${row%%|*}
    printf '| %s | %s | %s | %s |\n' "${row#*|}" "$(spread "$file.0" %.2f)" "$(spread "$file.100000" %.2f)" \
        "$(spread "$file.1000000" %.2f)"
done
