# What every measuring script shares: a build, a place for data, a server of its own, and medians with their spread. Sourced from the
# top of the repository; `name` is what the place is called after.
#
#   BENCH_PROFILE  cargo profile to build (default release)
#   BENCH_SERVER   the server to measure instead of the one that is built
#   BENCH_DIR      where the data directories go (default: the system's temporary directory)
# shellcheck shell=bash disable=SC2154
profile=${BENCH_PROFILE:-release}
bin=${CARGO_TARGET_DIR:-target}/$profile
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/corq-$name.XXXXXX")
server=
stop() {
    [ -n "$server" ] || return 0
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
trap 'stop; rm -rf "$work"' EXIT
# shellcheck source=scripts/lib/ports.sh
. scripts/lib/ports.sh

cargo build --quiet --profile "$profile" -p corq -p corq-bench

ready() {
    local line
    { exec 3<>"/dev/tcp/127.0.0.1/$http"; } 2>/dev/null || return 1
    printf 'GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
    read -r line <&3 || line=
    exec 3<&- 3>&-
    [[ $line == *" 200 "* ]]
}

# Starts a server on the data that is there; arguments are settings, NAME=value. Sets `tcp`, `http` and `server`.
start_again() {
    tcp=$(free_port)
    http=$(free_port)
    env HOST=127.0.0.1 TCP_PORT="$tcp" HTTP_PORT="$http" DATA_PATH="$work/data" "$@" "${BENCH_SERVER:-$bin/corq}" serve >>"$work/log" 2>&1 &
    server=$!
    until ready; do
        if ! kill -0 "$server" 2>/dev/null; then
            cat "$work/log" >&2
            echo "the server did not start" >&2
            return 1
        fi
        sleep 0.02
    done
}

# The same, on no data.
start() {
    rm -rf "$work/data"
    start_again "$@"
}

# The server on a core of its own, the generator on another and before whatever else runs there, so that what is measured is how the
# server serves, not how the kernel shares cores out. For a server of one shard.
generator=()
apart() {
    [ "$(nproc)" -ge 2 ] || { echo "needs two cores: one for the server, one for its clients" >&2; exit 1; }
    taskset -acp 0 "$server" >"$work/pinned"
    generator=(taskset -c 1)
    if chrt -f 1 true 2>/dev/null; then generator+=(chrt -f 1); fi
}

# Runs the load generator; its figures go where `figure` finds them.
bench() { # workload, options
    "${generator[@]}" "$bin/corq-bench" "$@" --port "$tcp" --http-port "$http" --pid "$server" --json >"$work/one.json" || {
        cat "$work/one.json" "$work/log" >&2
        echo "$* failed" >&2
        exit 1
    }
}

figure() { # name: a number of the last run
    sed -n "s/.*\"$1\":\([-0-9.e]*\).*/\1/p" "$work/one.json"
}

percentile() { # what was timed, which: of the last run, in microseconds
    # The keys of an object stand in the order of the alphabet.
    grep -o "\"$1\":{[^}]*}" "$work/one.json" | sed -n "s/.*\"$2\":\([0-9.]*\).*/\1/p"
}

metric() { # name: what the server counts
    {
        printf 'GET /prometheus HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
        sed -n "s/^$1 \([0-9]*\).*/\1/p" <&3
    } 3<>"/dev/tcp/127.0.0.1/$http"
}

memory_kb() { # of the server, now
    sed -n 's/^VmRSS: *\([0-9]*\) kB/\1/p' "/proc/$server/status"
}

take() { # file, number: remembers it
    printf '%s\n' "${2:-0}" >>"$work/$1"
}

spread() { # file, format: median (least–most) of what was remembered
    sort -g "$work/$1" | awk -v f="$2" '{ v[NR] = $1 } END {
        m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
        printf f " (" f "–" f ")", m, v[1], v[NR] }'
}

# Median of what was remembered, and between which of the values that of all such runs lies with 95 %, whatever their distribution:
# the ranks that so many tosses of a coin leave out. Needs six values; of fewer it shows the least and the most.
interval() { # file, format
    sort -g "$work/$1" | awk -v f="$2" '{ v[NR] = $1 } END {
        m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
        c = 0.5 ^ NR; out = 0
        for (k = 0; 2 * (out + c) <= 0.05; k++) { out += c; c *= (NR - k) / (k + 1) }
        k = k ? k : 1
        printf f " [" f ", " f "]", m, v[k], v[NR + 1 - k] }'
}
