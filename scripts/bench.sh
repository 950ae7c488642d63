#!/usr/bin/env bash
# The standing figures of corq: every workload with DURABILITY=written and synced, in turns, on a
# fresh data directory, by the load generator of this repository. Prints a Markdown table of
# medians with their spread.
#
#   scripts/bench.sh [rounds]        default 5
#
#   BENCH_SCALE    per cent of the usual number of jobs (default 100)
#   BENCH_PROFILE  cargo profile to build (default release)
#   BENCH_DIR      where the data directories go (default: the system's temporary directory)
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-5}
scale=${BENCH_SCALE:-100}
profile=${BENCH_PROFILE:-release}
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/corq-bench.XXXXXX")
server=

stop() {
    [ -z "$server" ] && return
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
trap 'stop; rm -rf "$work"' EXIT

cargo build --quiet --profile "$profile" -p corq -p corq-bench
bin=target/$profile

free_port() {
    local port
    for _ in $(seq 100); do
        port=$((20000 + RANDOM % 12000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
    done
    echo "no free port found" >&2
    return 1
}

start() { # durability
    tcp=$(free_port)
    http=$(free_port)
    rm -rf "$work/data"
    HOST=127.0.0.1 TCP_PORT=$tcp HTTP_PORT=$http DATA_PATH=$work/data DURABILITY=$1 \
        "$bin/corq" serve >"$work/server.log" 2>&1 &
    server=$!
    for _ in $(seq 200); do
        if kill -0 "$server" 2>/dev/null && healthy; then return; fi
        sleep 0.05
    done
    cat "$work/server.log" >&2
    echo "the server did not start" >&2
    return 1
}

healthy() {
    local line
    { exec 3<>"/dev/tcp/127.0.0.1/$http"; } 2>/dev/null || return 1
    printf 'GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
    read -r line <&3 || line=
    exec 3<&- 3>&-
    [[ $line == *" 200 "* ]]
}

# name | jobs | arguments
workloads=(
    "PUSH, 1 in flight|60000|push --window 1"
    "PULL + ACK, 1 in flight|40000|worker --window 1"
    "PUSH, 50 in flight|600000|push --window 50"
    "PULL + ACK, 25 in flight|300000|worker --window 25"
    "PUSHB 100|2000000|push-batch --batch 100"
    "PULLB + ACKB 100|1000000|drain --batch 100"
    "PUSHB 1000|2000000|push-batch --batch 1000"
    "PULLB + ACKB 1000|1000000|drain --batch 1000"
)

field() { # name, file: the number behind a key of the generator's JSON
    sed -n "s/.*\"$1\":\([-0-9.e]*\).*/\1/p" "$2"
}

run() { # durability, index
    local name jobs arguments
    IFS='|' read -r name jobs arguments <<<"${workloads[$2]}"
    # shellcheck disable=SC2086 # the arguments are words on purpose
    if ! "$bin/corq-bench" $arguments --jobs $((jobs * scale / 100)) --connections 4 --queues 4 \
        --payload-bytes 100 --port "$tcp" --pid "$server" --json >"$work/one.json"; then
        cat "$work/one.json" "$work/server.log" >&2
        echo "$name ($1) failed" >&2
        exit 1
    fi
    field cpu_us_per_job "$work/one.json" >>"$work/$1.$2.cpu"
    field jobs_per_second "$work/one.json" >>"$work/$1.$2.rate"
    field generator_cpu_us_per_job "$work/one.json" >>"$work/$1.$2.own"
}

memory() { # durability
    "$bin/corq-bench" push-batch --batch 1000 --jobs $((1000000 * scale / 100)) --connections 4 \
        --queues 4 --payload-bytes 100 --port "$tcp" --pid "$server" --json >"$work/one.json"
    field rss_bytes_per_job "$work/one.json" >>"$work/$1.memory"
}

for round in $(seq "$rounds"); do
    for durability in written synced; do
        echo "round $round of $rounds, $durability" >&2
        for index in "${!workloads[@]}"; do
            # A fresh server for each, so that no figure depends on what ran before it.
            start "$durability"
            run "$durability" "$index"
            stop
        done
        start "$durability"
        memory "$durability"
        stop
    done
done

spread() { # file, format: median (min-max)
    sort -g "$1" | awk -v f="$2" '{ v[NR] = $1 } END {
        m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
        printf f " (" f "–" f ")", m, v[1], v[NR] }'
}

printf '%s, %s CPUs, %s rounds; 4 connections, 4 queues, 100-byte payloads; batches 1 in flight.\n' \
    "$(uname -sr)" "$(nproc)" "$rounds"
printf 'Median (least–most). us = server CPU microseconds per job.\n\n'
printf '| work | written us | written jobs/s | synced us | synced jobs/s | generator us |\n'
printf '|---|---|---|---|---|---|\n'
for index in "${!workloads[@]}"; do
    printf '| %s | %s | %s | %s | %s | %s |\n' "${workloads[$index]%%|*}" \
        "$(spread "$work/written.$index.cpu" %.2f)" "$(spread "$work/written.$index.rate" %.0f)" \
        "$(spread "$work/synced.$index.cpu" %.2f)" "$(spread "$work/synced.$index.rate" %.0f)" \
        "$(spread "$work/written.$index.own" %.2f)"
done
printf '| memory per waiting job, bytes | %s | | %s | | |\n' \
    "$(spread "$work/written.memory" %.0f)" "$(spread "$work/synced.memory" %.0f)"
