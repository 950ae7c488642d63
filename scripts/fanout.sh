#!/usr/bin/env bash
# Whether listeners delay those who push: the round trip of pushes at a fixed rate (open loop, with workers) without
# listeners, with listeners of all queues, and with listeners of one queue each, in turns on fresh servers. Each job
# makes three events: pushed, pulled, completed. Prints a Markdown table of medians with their spread.
#
#   scripts/fanout.sh [rounds] [events per second] [listeners]        default 5, 50000, 100
#
#   FANOUT_SECONDS   seconds of each run (default 8)
#   FANOUT_PROFILE   cargo profile to build (default release)
#   BENCH_DIR        where the data directories go (default: the system's temporary directory)
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
events=${2:-50000}
listeners=${3:-100}
seconds=${FANOUT_SECONDS:-8}
profile=${FANOUT_PROFILE:-release}
bin=${CARGO_TARGET_DIR:-target}/$profile
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/corq-fanout.XXXXXX")
server=
stop() {
    [ -z "$server" ] && return
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
trap 'stop; rm -rf "$work"' EXIT

cargo build --quiet --profile "$profile" -p corq -p corq-bench

start() {
    tcp=$((20000 + RANDOM % 12000))
    rm -rf "$work/data"
    HOST=127.0.0.1 TCP_PORT=$tcp HTTP_PORT=$((tcp + 1)) DATA_PATH=$work/data "$bin/corq" serve >"$work/log" 2>&1 &
    server=$!
    for _ in $(seq 200); do
        if kill -0 "$server" 2>/dev/null && (exec 3<>"/dev/tcp/127.0.0.1/$tcp") 2>/dev/null; then return; fi
        sleep 0.05
    done
    cat "$work/log" >&2
    return 1
}

metric() { # name
    {
        printf 'GET /prometheus HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
        sed -n "s/^$1 \([0-9]*\).*/\1/p" <&3
    } 3<>"/dev/tcp/127.0.0.1/$((tcp + 1))"
}

take() { # name, number
    printf '%s\n' "${2:-0}" >>"$work/$name.$1"
}

run() { # name, options
    name=$1
    shift
    start
    "$bin/corq-bench" open --rate "$((events / 3))" --seconds "$seconds" --connections 8 --queues "$listeners" \
        --payload-bytes 100 --port "$tcp" --http-port "$((tcp + 1))" --pid "$server" --keep --json "$@" \
        >"$work/one.json" || { cat "$work/one.json" "$work/log" >&2; exit 1; }
    # The keys of an object stand in the order of the alphabet.
    local trip times
    trip=$(grep -o '"push_us":{[^}]*}' "$work/one.json")
    times=$(grep -o '"push_to_receipt_us":{[^}]*}' "$work/one.json")
    take p50 "$(sed -n 's/.*"p50":\([0-9.]*\).*/\1/p' <<<"$trip")"
    take p99 "$(sed -n 's/.*"p99":\([0-9.]*\).*/\1/p' <<<"$trip")"
    take receipt "$(sed -n 's/.*"p99":\([0-9.]*\).*/\1/p' <<<"$times")"
    take cpu "$(sed -n 's/.*"cpu_us_per_job":\([0-9.]*\).*/\1/p' "$work/one.json")"
    take rate "$(sed -n 's/.*"jobs_per_second":\([0-9.]*\).*/\1/p' "$work/one.json")"
    take heard "$(sed -n "s/.*\"heard\":{[^}]*\"events\":\([0-9]*\).*/\1/p" "$work/one.json" | awk -v s="$seconds" '{ print $1 / s }')"
    take lost "$(metric corq_events_lost_total)"
    stop
}

for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    run none
    run all --listeners "$listeners"
    run one --listeners "$listeners" --listen-to-one
done

spread() { # file, format
    sort -g "$work/$1" | awk -v f="$2" '{ v[NR] = $1 } END {
        m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
        printf f " (" f "–" f ")", m, v[1], v[NR] }'
}

printf '%s, %s CPUs, %s rounds of %s s; %s events/s made, %s listeners.\n' \
    "$(uname -sr)" "$(nproc)" "$rounds" "$seconds" "$events" "$listeners"
printf 'Median (least–most); times in microseconds.\n\n'
printf '| listeners | push p50 | push p99 | push to receipt p99 | server CPU us/job | jobs/s | events/s heard | events lost | p99 / without |\n'
printf '|---|---|---|---|---|---|---|---|---|\n'
for row in "none|none" "all|each of all queues" "one|each of one queue"; do
    name=${row%%|*}
    paste "$work/$name.p99" "$work/none.p99" | awk '{ print $1 / $2 }' >"$work/ratio"
    printf '| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n' "${row#*|}" "$(spread "$name.p50" %.0f)" \
        "$(spread "$name.p99" %.0f)" "$(spread "$name.receipt" %.0f)" "$(spread "$name.cpu" %.2f)" \
        "$(spread "$name.rate" %.0f)" "$(spread "$name.heard" %.0f)" "$(spread "$name.lost" %.0f)" "$(spread ratio %.2f)"
done
