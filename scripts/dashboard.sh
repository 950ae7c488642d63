#!/usr/bin/env bash
# Measures the dashboard, over a server of one shard with 10,000 queues, a million jobs in them and a million in one more. Prints Markdown
# tables. The browser comes from scripts/judges.sh.
#
#   scripts/dashboard.sh page [seconds of live updates]                                        default 600
#       How long until a page shows something, its longest task while a person scrolls and filters, and what it holds after live updates.
#   scripts/dashboard.sh cost [dashboards] [jobs per second] [pairs] [seconds of a run]         default 10, 100000, 12, 10
#       What open dashboards cost the thread of the shard: beside nothing else, and beside jobs at a fixed rate, with the round trip of their
#       pushes. Jobs are pushed, pulled and acknowledged ten at a time: one by one, a core cannot do as many.
#       Runs with and without are neighbours in time, in turn the one and the other first, and what is compared is the two of a pair: from
#       one minute to the next a machine changes by more than a dashboard costs. The rate must leave the shard room, or it serves
#       dashboards in the time of jobs and the difference is not to be seen.
#
#       Seconds of a run should be a multiple of 10, as dashboards ask for lists each 10 s.
#   scripts/dashboard.sh lists [requests of a kind]                                             default 300
#       The time of the shard, and the round trip, of each list that a page asks for.
#
# Without arguments all. JOBS is how many jobs each of the two millions has (for a trial).
set -euo pipefail
cd "$(dirname "$0")/.."
part=${1:-}
jobs=${JOBS:-1000000}
case $part in
"") seconds=600 viewers=10 rate=100000 pairs=12 each=10 requests=300 ;;
page) seconds=${2:-600} viewers=0 ;;
cost) viewers=${2:-10} rate=${3:-100000} pairs=${4:-12} each=${5:-10} ;;
lists) viewers=0 requests=${2:-300} ;;
*) echo "usage: $0 [page [seconds] | cost [dashboards] [jobs per second] [pairs] [seconds of a run] | lists [requests]]" >&2; exit 2 ;;
esac
name=dashboard
if [ "$part" != lists ]; then
    judges=$(scripts/judges.sh page)
    sockets=$(scripts/judges.sh node)
    browser=$(scripts/judges.sh browser)
fi
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
        bench open --rate "$2" --batch 10 --seconds "$each" --connections 8 --queues 4 --payload-bytes 100
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
    printf '\n%s dashboards, %s jobs/s of 100 bytes by tens, %s pairs of runs of %s s. CPU of the thread of the shard, in %% of a core; round trips of pushes in microseconds.\n' \
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

# Asks for each list one request after the other, with the cursor of the page before. Prints a row of the table for each.
lists() {
    taskset -c 1 python3 - "$tcp" "$server" "$requests" <<'PY'
import glob, json, socket, struct, sys, time

port, server, requests = (int(text) for text in sys.argv[1:])
ids = []

def encoded(value):
    if isinstance(value, str):
        return bytes([0xD9, len(value)]) + value.encode()
    if isinstance(value, int):
        return struct.pack(">BI", 0xCE, value)
    if isinstance(value, list):
        return bytes([0x90 | len(value)]) + b"".join(map(encoded, value))
    return bytes([0x80 | len(value)]) + b"".join(encoded(key) + encoded(item) for key, item in value.items())

connection = socket.create_connection(("127.0.0.1", port))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

def ask(command):
    frame = encoded(command)
    connection.sendall(struct.pack(">I", len(frame)) + frame)
    head = connection.recv(4, socket.MSG_WAITALL)
    return connection.recv(struct.unpack(">I", head)[0], socket.MSG_WAITALL)

def text_behind(reply, key):
    # A text behind its key, as the server encodes both.
    at = reply.find(bytes([0xA0 | len(key)]) + key.encode())
    if at < 0:
        return None
    at += 1 + len(key)
    kind = reply[at]
    if 0xA0 <= kind < 0xC0:
        return reply[at + 1 : at + 1 + (kind & 0x1F)].decode()
    return reply[at + 2 : at + 2 + reply[at + 1]].decode() if kind == 0xD9 else None

def shard_ns():
    of_shards = [task for task in glob.glob(f"/proc/{server}/task/*") if open(task + "/comm").read().strip() == "corq-0"]
    return max(int(open(task + "/schedstat").read().split()[0]) for task in of_shards)

some = text_behind(ask({"cmd": "GetJobs", "queue": "one-0", "limit": 1}), "id")
for what, command in [
    ("`ListQueues` by name", {"cmd": "ListQueues", "limit": 50}),
    ("`ListQueues` by waiting jobs", {"cmd": "ListQueues", "sort": "waiting", "limit": 50}),
    ("`ListQueues` with a prefix", {"cmd": "ListQueues", "prefix": "many-77", "limit": 50}),
    ("`GetJobs`, oldest first", {"cmd": "GetJobs", "queue": "one-0", "state": "waiting", "limit": 50, "order": "asc"}),
    ("`GetJobs`, newest first", {"cmd": "GetJobs", "queue": "one-0", "state": "waiting", "limit": 50, "order": "desc"}),
    ("`GetJobs` with previews", {"cmd": "GetJobs", "queue": "one-0", "limit": 50, "data": "preview"}),
    ("`GetJobCounts`", {"cmd": "GetJobCounts", "queue": "one-0"}),
    ("`Explain`", {"cmd": "Explain", "id": some}),
    ("`GetJobDetail`", {"cmd": "GetJobDetail", "id": some}),
    ("`History` of a queue", {"cmd": "History", "queue": "one-0"}),
    ("`ListWorkers`", {"cmd": "ListWorkers", "limit": 50}),
    ("`DlqGroups`", {"cmd": "DlqGroups", "queue": "one-0"}),
]:
    reply, times, took, pages = ask(command), [], 0, 0
    if b"\xa5error" in reply[:200]:
        sys.exit(f"{what}: {text_behind(reply, 'error')}")
    for _ in range(requests):
        after = text_behind(reply[-400:], "next") if "limit" in command else None
        began, before = time.perf_counter(), shard_ns()
        reply = ask({**command, "after": after} if after else command)
        times.append(time.perf_counter() - began)
        took += shard_ns() - before
    times.sort()
    print(f"| {what} | {took / requests / 1e3:.0f} | {times[len(times) // 2] * 1e6:.0f} | {times[len(times) * 99 // 100] * 1e6:.0f} | {len(reply)} |")
PY
}

measure_lists() {
    printf '\n%s requests of each kind, one after the other, each for the page behind the one before. Times in microseconds.\n\n' "$requests"
    printf '| list | time of the shard | round trip p50 | round trip p99 | bytes of a page |\n|---|---|---|---|---|\n'
    lists
}

case $part in
page) measure_page ;;
cost) measure_cost ;;
lists) measure_lists ;;
*) measure_lists && measure_page && measure_cost ;;
esac
stop
