#!/usr/bin/env bash
# Measures a backlog larger than memory: pushes jobs, restarts the server, then pulls and acknowledges all of them, each exactly once.
# Prints a Markdown table: the server's memory after each step, and the speed.
#
#   scripts/backlog.sh [jobs] [payload bytes]        default 20000000, 1000
#
# ORDER=priorities or ORDER=delays pushes with random priorities (and drains by them), or with random delays (and does not drain). Needs
# space for the jobs on the disk of BENCH_DIR (default: the system's temporary directory); PAYLOAD_CACHE_MB is 256 unless set.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-20000000}
bytes=${2:-1000}
order=${ORDER:-fifo}
export PAYLOAD_CACHE_MB=${PAYLOAD_CACHE_MB:-256}
name=backlog
. scripts/lib/measure.sh
load=(--connections 4 --queues 4 --payload-bytes "$bytes" --queue-prefix backlog --keep --batch 1000 --patience 300)

memory() { # name of the step, what to say of it
    awk -v step="$1" -v said="$2" -v empty="$empty" -v jobs="$jobs" '
        /^VmRSS/ { rss = $2 } /^VmHWM/ { peak = $2 }
        END { printf "| %s | %d | %d | %.0f | %s |\n", step, rss / 1024, peak / 1024, (rss - empty) * 1024 / jobs, said }
    ' "/proc/$server/status"
}

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
bench push-batch "${load[@]}" --jobs "$jobs" "${options[@]}"
memory "pushed" "$(speed)"
disk=$(du -sb --apparent-size "$work/data" | cut -f1)
stop
from=$(date +%s.%N)
start_again
memory "restarted" "$(awk -v from="$from" -v to="$(date +%s.%N)" -v b="$disk" 'BEGIN { t = to - from; printf "ready after %.1f s, %.2f s per GB of log (%.1f GB)", t, t / (b / 1e9), b / 1e9 }')"
if [ "$order" != delays ]; then
    bench drain "${load[@]}" --resume --jobs "$jobs"
    memory "drained, each job exactly once" "$(speed)"
fi
