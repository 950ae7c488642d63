#!/usr/bin/env bash
# Measures the dashboard, over a server of one shard with 10,000 queues, a million jobs in them and a million in one more. Prints Markdown
# tables. The browser comes from scripts/judges.sh.
#
#   scripts/dashboard.sh page [seconds of live updates]                                        default 600
#       How long until a page shows something, its longest task while a person scrolls and filters, and what it holds after live updates.
#   scripts/dashboard.sh cost [dashboards] [jobs per second] [pairs] [seconds of a run]         default 10, 50000, 12, 10
#       What open dashboards cost the thread of the shard: beside nothing else, and beside pushes at a fixed rate, with their round trip.
#       Runs with and without are neighbours in time, in turn the one and the other first, and what is compared is the two of a pair: from
#       one minute to the next a machine changes by more than a dashboard costs. The rate must leave the shard room, or it serves
#       dashboards in the time of jobs and the difference is not to be seen.
#
#       Seconds of a run should be a multiple of 5, as dashboards ask for lists each 5 s.
#
# Without arguments both. JOBS is how many jobs each of the two millions has (for a trial).
set -euo pipefail
cd "$(dirname "$0")/.."
part=${1:-}
jobs=${JOBS:-1000000}
case $part in
"") seconds=600 viewers=10 rate=50000 pairs=12 each=10 ;;
page) seconds=${2:-600} viewers=0 ;;
cost) viewers=${2:-10} rate=${3:-50000} pairs=${4:-12} each=${5:-10} ;;
*) echo "usage: $0 [page [seconds] | cost [dashboards] [jobs per second] [pairs] [seconds of a run]]" >&2; exit 2 ;;
esac
name=dashboard
judges=$(scripts/judges.sh page)
sockets=$(scripts/judges.sh node)
browser=$(scripts/judges.sh browser)
. scripts/lib/measure.sh

drive() { # part, seconds
    exec taskset -c 1 nice -n 5 node bench/dashboard.mjs "$1" \
        "{\"base\":\"http://127.0.0.1:$http/ui/\",\"browser\":\"$browser\",\"judges\":\"$judges\",\"sockets\":\"$sockets\",\"queue\":\"one-0\",\"viewers\":$viewers,\"seconds\":$2}"
}

start SHARDS=1
apart
echo "$jobs jobs in one queue, $jobs in 10,000 queues" >&2
bench push-batch --batch 1000 --connections 2 --queues 1 --queue-prefix one --jobs "$jobs" --payload-bytes 200 --keep
bench push-batch --batch 100 --connections 2 --queues 10000 --queue-prefix many --jobs "$jobs" --payload-bytes 200 --keep
printf '%s, %s CPUs; the server on one of them, browser and generator on the other.\n' "$(uname -sr)" "$(nproc)"

measure_page() {
    echo "the page, with $seconds s of live updates" >&2
    bench open --rate 200 --seconds $((seconds + 90)) --connections 2 --queues 4 --payload-bytes 100 &
    local load=$! figure value
    (drive page "$seconds") >"$work/page"
    kill "$load" 2>/dev/null || true
    wait "$load" 2>/dev/null || true
    printf '\nTimes in ms.\n\n| figure | value |\n|---|---|\n'
    while IFS=$'\t' read -r figure value; do printf '| %s | %s |\n' "$figure" "$value"; done <"$work/page"
}

# Nanoseconds that the thread of the shard has run: of those that bear its name the one that has run most.
shard_ns() {
    local task
    for task in "/proc/$server/task"/*; do
        [ "$(cat "$task/comm")" != corq-0 ] || cut -d ' ' -f 1 "$task/schedstat"
    done | sort -g | tail -n 1
}

order() { # open or close: the dashboards, and lets pass what they ask for at first
    local answer
    echo "$1" >&"${VIEWERS[1]}"
    read -r answer <&"${VIEWERS[0]}"
    [ "$answer" = done ]
    sleep 6
}

run() { # what it is called, jobs per second
    local before began
    before=$(shard_ns)
    began=$(date +%s%N)
    if [ "$2" = 0 ]; then
        sleep "$each"
    else
        bench open --rate "$2" --seconds "$each" --connections 8 --queues 4 --payload-bytes 100
        take "$1.p50" "$(percentile push_us p50)"
        take "$1.p99" "$(percentile push_us p99)"
    fi
    take "$1.cpu" "$(awk -v cpu="$(($(shard_ns) - before))" -v all="$(($(date +%s%N) - began))" 'BEGIN { print cpu / all * 100 }')"
}

compare() { # pairs, jobs per second
    local pair what times rows='cpu p50 p99'
    rm -f "$work"/{alone,beside,more}.*
    for pair in $(seq "$1"); do
        echo "pair $pair of $1 at $2 jobs/s" >&2
        if ((pair % 2)); then
            run alone "$2"
            order open
            run beside "$2"
        else
            run beside "$2"
            order close
            run alone "$2"
        fi
    done
    order close
    [ "$2" != 0 ] || rows=cpu
    for what in $rows; do
        paste "$work/beside.$what" "$work/alone.$what" | awk '{ print $1 - $2 }' >"$work/more.$what"
    done
    printf '\n%s dashboards, %s jobs/s of 100 bytes, %s pairs of runs of %s s. CPU of the thread of the shard, in %% of a core; round trips of pushes in microseconds.\n' \
        "$viewers" "$2" "$1" "$each"
    printf 'Of runs the median (least–most), of pairs the median [that of all such pairs, with 95 %% from six pairs on].\n\n'
    printf '| figure | alone | beside dashboards | more, by pairs | times, by pairs |\n|---|---|---|---|---|\n'
    for what in $rows; do
        times=
        if [ "$what" != cpu ]; then
            paste "$work/beside.$what" "$work/alone.$what" | awk '{ print $1 / $2 }' >"$work/times"
            times=$(interval times %.3f)
        fi
        printf '| %s | %s | %s | %s | %s |\n' "$what" "$(spread "alone.$what" %.2f)" "$(spread "beside.$what" %.2f)" \
            "$(interval "more.$what" %+.2f)" "$times"
    done
}

measure_cost() {
    local answer
    echo "what an open dashboard asks for" >&2
    coproc VIEWERS { drive viewers 0; }
    read -r answer <&"${VIEWERS[0]}"
    [ "$answer" = ready ]
    # Without jobs runs differ by little.
    compare $((pairs < 6 ? pairs : 6)) 0
    compare "$pairs" "$rate"
}

[ "$part" = cost ] || measure_page
[ "$part" = page ] || measure_cost
stop
