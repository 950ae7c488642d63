#!/usr/bin/env bash
# What a push over HTTP costs the server beside one over TCP: CPU microseconds per request with keep-alive, one
# request in flight per connection on both sides, in turns on fresh servers. Prints a Markdown table of medians with
# their spread. HTTP is asked by wrk, TCP by the load generator of this repository.
#
#   scripts/http.sh [rounds]         default 5
#
#   HTTP_SECONDS   seconds of each run (default 8)
#   HTTP_PROFILE   cargo profile to build (default release)
#   BENCH_DIR      where the data directories go (default: the system's temporary directory)
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
seconds=${HTTP_SECONDS:-8}
profile=${HTTP_PROFILE:-release}
bin=${CARGO_TARGET_DIR:-target}/$profile
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/corq-http.XXXXXX")
server=
stop() {
    [ -z "$server" ] && return
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
trap 'stop; rm -rf "$work"' EXIT

wrk=$(scripts/judges.sh wrk)
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

cpu_us() { # of all threads of the server
    awk '{ sum += $1 } END { printf "%d", sum / 1000 }' "/proc/$server"/task/*/schedstat
}

# The payload has 100 bytes, as the generator's has; each thread of wrk pushes to queues of its own.
cat >"$work/push.lua" <<'LUA'
local threads = 0
function setup(thread)
    thread:set("number", threads)
    threads = threads + 1
end
function init()
    local body = '{"data":{"s":' .. number .. ',"p":"' .. string.rep("x", 88) .. '"}}'
    local type = { ["Content-Type"] = "application/json" }
    requests = {}
    for queue = 1, 4 do
        requests[queue] = wrk.format("POST", "/queues/http-" .. number .. "-" .. queue .. "/jobs", type, body)
    end
    turn = 0
end
function request()
    turn = turn % 4 + 1
    return requests[turn]
end
function done(summary, latency)
    local errors = summary.errors
    local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
    print(string.format("RESULT %d %d %d", summary.requests, summary.duration, failed))
end
LUA

http() { # connections
    start
    local before after requests duration failed
    before=$(cpu_us)
    "$wrk" --threads 2 --connections "$1" --duration "${seconds}s" --script "$work/push.lua" \
        "http://127.0.0.1:$((tcp + 1))" >"$work/wrk"
    after=$(cpu_us)
    read -r _ requests duration failed < <(grep ^RESULT "$work/wrk")
    if [ "$failed" != 0 ] || [ "$requests" = 0 ]; then
        cat "$work/wrk" "$work/log" >&2
        exit 1
    fi
    awk -v t=$((after - before)) -v n="$requests" 'BEGIN { printf "%.3f\n", t / n }' >>"$work/http.$1.cpu"
    awk -v d="$duration" -v n="$requests" 'BEGIN { printf "%.0f\n", n * 1e6 / d }' >>"$work/http.$1.rate"
    stop
}

field() { # name
    sed -n "s/.*\"$1\":\([-0-9.e]*\).*/\1/p" "$work/one.json"
}

tcp() { # connections
    start
    "$bin/corq-bench" push --window 1 --seconds "$seconds" --connections "$1" --queues 8 --payload-bytes 100 \
        --port "$tcp" --pid "$server" --keep --json >"$work/one.json" || { cat "$work/one.json" "$work/log" >&2; exit 1; }
    field cpu_us_per_job >>"$work/tcp.$1.cpu"
    field jobs_per_second >>"$work/tcp.$1.rate"
    stop
}

for round in $(seq "$rounds"); do
    for connections in 4 64; do
        echo "round $round of $rounds, $connections connections" >&2
        tcp "$connections"
        http "$connections"
    done
done

spread() { # file, format
    sort -g "$work/$1" | awk -v f="$2" '{ v[NR] = $1 } END {
        m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
        printf f " (" f "–" f ")", m, v[1], v[NR] }'
}

printf '%s, %s CPUs, %s rounds of %s s; single pushes of 100 bytes, one in flight per connection.\n' \
    "$(uname -sr)" "$(nproc)" "$rounds" "$seconds"
printf 'Median (least–most). us = server CPU microseconds per push; the last column is the median of HTTP over TCP in one round.\n\n'
printf '| connections | TCP us | HTTP us | TCP pushes/s | HTTP pushes/s | HTTP / TCP |\n|---|---|---|---|---|---|\n'
for connections in 4 64; do
    paste "$work/http.$connections.cpu" "$work/tcp.$connections.cpu" | awk '{ print $1 / $2 }' >"$work/ratio"
    printf '| %s | %s | %s | %s | %s | %s |\n' "$connections" "$(spread "tcp.$connections.cpu" %.2f)" \
        "$(spread "http.$connections.cpu" %.2f)" "$(spread "tcp.$connections.rate" %.0f)" \
        "$(spread "http.$connections.rate" %.0f)" "$(spread ratio %.2f)"
done
