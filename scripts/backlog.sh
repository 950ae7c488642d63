#!/usr/bin/env bash
# A backlog larger than memory: so many waiting jobs of so many bytes, a restart over them, and all of them pulled and acknowledged
# again, each exactly once. Prints a Markdown table: what the server's memory holds at each step, and how fast it goes.
#
#   scripts/backlog.sh [jobs] [payload bytes] [server binary]    default 20000000, 1000, target/release/corq
#
# ORDER=priorities or ORDER=delays pushes with random priorities (and drains by them), or with random delays (and does not drain). Needs
# room for the jobs on the disk of BENCH_DIR (default: the system's temporary directory); PAYLOAD_CACHE_MB is 256 unless set.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-20000000}
bytes=${2:-1000}
bin=${3:-target/release/corq}
order=${ORDER:-fifo}
export PAYLOAD_CACHE_MB=${PAYLOAD_CACHE_MB:-256}
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/corq-backlog.XXXXXX")
tcp=$((20000 + RANDOM % 12000))
server=
stop() {
    [ -z "$server" ] && return
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
trap 'stop; rm -rf "$work"' EXIT

seconds() { date +%s.%N; }
start() { # sets `took`: seconds until the server is ready
    local from
    from=$(seconds)
    HOST=127.0.0.1 TCP_PORT=$tcp HTTP_PORT=$((tcp + 1)) DATA_PATH=$work/data "$bin" serve >>"$work/log" 2>&1 &
    server=$!
    until (exec 3<>"/dev/tcp/127.0.0.1/$tcp") 2>/dev/null &&
        curl -fs -o "$work/ready" "http://127.0.0.1:$((tcp + 1))/ready"; do
        kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
        sleep 0.02
    done
    took=$(awk -v from="$from" -v to="$(seconds)" 'BEGIN { printf "%.2f", to - from }')
}

memory() { # name of the step, what to say of it
    awk -v step="$1" -v said="$2" -v empty="$empty" -v jobs="$jobs" '
        /^VmRSS/ { rss = $2 } /^VmHWM/ { peak = $2 }
        END { printf "| %s | %d | %d | %.0f | %s |\n", step, rss / 1024, peak / 1024, (rss - empty) * 1024 / jobs, said }
    ' "/proc/$server/status"
}

bench() { # workload, options
    target/release/corq-bench "$@" --connections 4 --queues 4 --payload-bytes "$bytes" --queue-prefix backlog --keep \
        --batch 1000 --patience 300 --port "$tcp" --pid "$server" --json >"$work/one.json" ||
        { cat "$work/one.json" "$work/log" >&2; exit 1; }
}
figure() { sed -n "s/.*\"$1\":\([-0-9.e]*\).*/\1/p" "$work/one.json"; }
speed() {
    awk -v rate="$(figure jobs_per_second)" -v cpu="$(figure cpu_us_per_job)" -v bytes="$bytes" \
        'BEGIN { printf "%.0f jobs/s, %.0f MB/s of payload, %.2f us CPU per job", rate, rate * bytes / 1e6, cpu }'
}

options=()
[ "$order" = priorities ] && options=(--priorities 1000000)
[ "$order" = delays ] && options=(--delay-ms 900000000)

start
empty=$(awk '/^VmRSS/ { print $2 }' "/proc/$server/status")
printf '%s jobs of %s bytes, %s, PAYLOAD_CACHE_MB=%s\n\n' "$jobs" "$bytes" "$order" "$PAYLOAD_CACHE_MB"
printf '| step | memory MB | peak MB | bytes per job above an empty server | |\n|---|---|---|---|---|\n'
bench push-batch --jobs "$jobs" "${options[@]}"
memory "pushed" "$(speed)"
disk=$(du -sb --apparent-size "$work/data" | cut -f1)
stop
start
memory "restarted" "$(awk -v t="$took" -v b="$disk" 'BEGIN { printf "ready after %.1f s, %.2f s per GB of log (%.1f GB)", t, t / (b / 1e9), b / 1e9 }')"
if [ "$order" != delays ]; then
    bench drain --resume --jobs "$jobs"
    memory "drained, each job exactly once" "$(speed)"
fi
