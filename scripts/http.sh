#!/usr/bin/env bash
# Compares the cost of a push over HTTP and over TCP: server CPU microseconds per request with keep-alive, one
# request in flight per connection on both sides, interleaved, on fresh servers. Prints a Markdown table of medians with
# their spread. wrk drives HTTP, the load generator of this repository drives TCP.
#
#   scripts/http.sh [rounds]         default 5
#
#   HTTP_SECONDS   seconds of each run (default 8)
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
seconds=${HTTP_SECONDS:-8}
name=http
. scripts/lib/measure.sh
wrk=$(scripts/judges.sh wrk)

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

over_http() { # connections
    start
    local before after requests duration failed
    before=$(cpu_us)
    "$wrk" --threads 2 --connections "$1" --duration "${seconds}s" --script "$work/push.lua" \
        "http://127.0.0.1:$http" >"$work/wrk"
    after=$(cpu_us)
    read -r _ requests duration failed < <(grep ^RESULT "$work/wrk")
    if [ "$failed" != 0 ] || [ "$requests" = 0 ]; then
        cat "$work/wrk" "$work/log" >&2
        exit 1
    fi
    take "http.$1.cpu" "$(awk -v t=$((after - before)) -v n="$requests" 'BEGIN { printf "%.3f", t / n }')"
    take "http.$1.rate" "$(awk -v d="$duration" -v n="$requests" 'BEGIN { printf "%.0f", n * 1e6 / d }')"
    stop
}

over_tcp() { # connections
    start
    bench push --window 1 --seconds "$seconds" --connections "$1" --queues 8 --payload-bytes 100 --keep
    take "tcp.$1.cpu" "$(figure cpu_us_per_job)"
    take "tcp.$1.rate" "$(figure jobs_per_second)"
    stop
}

for round in $(seq "$rounds"); do
    for connections in 4 64; do
        echo "round $round of $rounds, $connections connections" >&2
        over_tcp "$connections"
        over_http "$connections"
    done
done

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
