#!/usr/bin/env bash
# Measures what people who look cost: the server's CPU beside 100 viewers with samples and lists, idle and under pushes at a fixed
# rate, and the round trip of those pushes beside searches through a large backlog. Interleaved, on one server with one shard and a
# core of its own. Prints Markdown tables of medians with their spread.
#
#   scripts/viewers.sh [rounds] [jobs in the backlog] [viewers] [jobs per second]        default 3, 10000000, 100, 1000
#
#   VIEWERS_SECONDS   seconds of each run (default 6)
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
jobs=${2:-10000000}
viewers=${3:-100}
rate=${4:-1000}
seconds=${VIEWERS_SECONDS:-6}
name=viewers
. scripts/lib/measure.sh

ticks() { # of the server's CPU so far, in hundredths of a second
    awk '{ print $14 + $15 }' "/proc/$server/stat"
}

# Each viewer has a connection with samples once a second and asks for a page of queues and of jobs every five seconds.
look() {
    taskset -c 1 nice -n 5 python3 - "$tcp" "$viewers" <<'PY'
import selectors, socket, struct, sys, time

def encoded(fields):
    out = bytes([0x80 | len(fields)])
    for key, value in fields.items():
        out += bytes([0xA0 | len(key)]) + key.encode()
        out += struct.pack(">BI", 0xCE, value) if isinstance(value, int) else bytes([0xD9, len(value)]) + value.encode()
    return struct.pack(">I", len(out)) + out

port, viewers = int(sys.argv[1]), int(sys.argv[2])
selector, connections = selectors.DefaultSelector(), []
for _ in range(viewers):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(encoded({"cmd": "Watch", "reqId": "w", "every": 1000, "top": 20}))
    selector.register(connection, selectors.EVENT_READ)
    connections.append(connection)
next_at = [time.monotonic() + 5 * place / viewers for place in range(viewers)]
while True:
    for key, _ in selector.select(0.05):
        key.fileobj.recv(1 << 20)
    now = time.monotonic()
    for place, connection in enumerate(connections):
        if next_at[place] <= now:
            next_at[place] += 5
            connection.sendall(encoded({"cmd": "ListQueues", "reqId": "q", "limit": 50}))
            connection.sendall(encoded({"cmd": "GetJobs", "reqId": "j", "queue": "viewed-0", "limit": 50, "order": "asc"}))
PY
}

search() {
    while :; do
        taskset -c 1 nice -n 5 "$bin/corq" search "not to be found" --port "$tcp" --queue viewed-0 >/dev/null 2>>"$work/log"
        echo >>"$work/searches"
    done
}

run() { # what it is called, what goes on beside it
    local who=$1 other= before
    shift
    if [ "$#" -gt 0 ]; then
        "$@" &
        other=$!
        sleep 2
    fi
    before=$(ticks)
    sleep "$seconds"
    take "$who.idle" "$(awk -v t=$(($(ticks) - before)) -v s="$seconds" 'BEGIN { print t / s }')"
    before=$(ticks)
    bench open --rate "$rate" --seconds "$seconds" --connections 8 --queues 4 --payload-bytes 100
    take "$who.cpu" "$(awk -v t=$(($(ticks) - before)) -v s="$seconds" 'BEGIN { print t / s }')"
    take "$who.p50" "$(percentile push_us p50)"
    take "$who.p99" "$(percentile push_us p99)"
    if [ -n "$other" ]; then
        pkill -P "$other" 2>/dev/null || true
        kill "$other" 2>/dev/null || true
        wait "$other" 2>/dev/null || true
    fi
}

start SHARDS=1
apart
echo "pushing $jobs jobs" >&2
bench push-batch --batch 1000 --connections 4 --queues 1 --queue-prefix viewed --jobs "$jobs" --payload-bytes 100 --keep
for round in $(seq "$rounds"); do
    echo "round $round of $rounds" >&2
    run alone
    run viewers look
    run search search
done
stop

printf '%s, %s CPUs, one shard on one of them, %s rounds of %s s; %s waiting jobs, %s viewers, %s jobs/s of 100 bytes are measured.\n' \
    "$(uname -sr)" "$(nproc)" "$rounds" "$seconds" "$jobs" "$viewers" "$rate"
printf 'Median (least–most); times in microseconds.\n\n'
printf '| beside | CPU of the shard without pushes, %% | with pushes, %% | push p50 | push p99 | p99 / alone |\n|---|---|---|---|---|---|\n'
for row in "alone|nothing" "viewers|$viewers viewers" "search|searches, one after the other"; do
    who=${row%%|*}
    paste "$work/$who.p99" "$work/alone.p99" | awk '{ print $1 / $2 }' >"$work/ratio"
    printf '| %s | %s | %s | %s | %s | %s |\n' "${row#*|}" "$(spread "$who.idle" %.1f)" "$(spread "$who.cpu" %.1f)" \
        "$(spread "$who.p50" %.0f)" "$(spread "$who.p99" %.0f)" "$(spread ratio %.2f)"
done
