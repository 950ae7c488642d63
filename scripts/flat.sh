#!/usr/bin/env bash
# Whether a job costs the same however many others there are: server CPU per job with 0, 100,000 and 1,000,000
# others waiting, in order of arrival, with random priorities and with random delays. Prints a Markdown table of
# medians with their spread.
#
#   scripts/flat.sh [rounds] [server binary]        default 3, target/release/corq
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
bin=${2:-target/release/corq}
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/corq-flat.XXXXXX")
server=
stop() {
    [ -z "$server" ] && return
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
trap 'stop; rm -rf "$work"' EXIT

start() {
    tcp=$((20000 + RANDOM % 12000))
    rm -rf "$work/data"
    HOST=127.0.0.1 TCP_PORT=$tcp HTTP_PORT=$((tcp + 1)) DATA_PATH=$work/data "$bin" serve >"$work/log" 2>&1 &
    server=$!
    for _ in $(seq 200); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$tcp") 2>/dev/null; then return; fi
        sleep 0.05
    done
    cat "$work/log" >&2
    return 1
}

bench() {
    target/release/corq-bench "$@" --batch 100 --connections 4 --queues 4 --payload-bytes 100 --port "$tcp" \
        --pid "$server" --json >"$work/one.json" || { cat "$work/one.json" "$work/log" >&2; exit 1; }
}

keep() { # file
    sed -n 's/.*"cpu_us_per_job":\([-0-9.e]*\).*/\1/p' "$work/one.json" >>"$work/$1"
}

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    for others in 0 100000 1000000; do
        for order in fifo priorities; do
            [ $order = fifo ] && options=() || options=(--priorities 1000000)
            start
            bench push-batch --jobs 400000 --prefill $others "${options[@]}"
            keep "$order.push.$others"
            stop
            start
            bench drain --jobs 400000 --prefill $((others + 400000)) "${options[@]}"
            keep "$order.drain.$others"
            stop
        done
        start
        if [ $others -gt 0 ]; then
            bench push-batch --jobs $others --delay-ms 3600000 --queue-prefix flat --keep
        fi
        bench drain --jobs 400000 --queue-prefix flat --keep
        keep "delays.drain.$others"
        bench push-batch --jobs 400000 --delay-ms 3600000
        keep "delays.push.$others"
        stop
    done
done

spread() {
    sort -g "$work/$1" | awk '{ v[NR] = $1 } END {
        m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
        printf "%.2f (%.2f–%.2f)", m, v[1], v[NR] }'
}

printf '| server CPU us per job, batches of 100 | 0 others | 100,000 others | 1,000,000 others |\n|---|---|---|---|\n'
for row in "fifo.push|PUSHB, first in first out" "fifo.drain|PULLB + ACKB, first in first out" \
    "priorities.push|PUSHB, random priorities" "priorities.drain|PULLB + ACKB, random priorities" \
    "delays.push|PUSHB, random delays" "delays.drain|PULLB + ACKB beside delayed jobs"; do
    name=${row%%|*}
    printf '| %s | %s | %s | %s |\n' "${row#*|}" "$(spread "$name.0")" "$(spread "$name.100000")" "$(spread "$name.1000000")"
done
