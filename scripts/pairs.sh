#!/usr/bin/env bash
# Compares this build with another server: short pairs of runs, each on a fresh data directory, the order changing from pair to pair, so
# that changes of the machine concern both. A workload is repeated until the median of the ratio within the pairs is known to 3 per
# cent: its interval of 95 per cent is no wider to either side, for user time and for all CPU. Prints a Markdown table with both
# ratios, the pairs that they took, and the bytes that compaction rewrote in both, which have to be alike for a fair comparison.
#
#   BASE=commit scripts/pairs.sh            the server of a commit, built below target/pairs
#   scripts/pairs.sh other-server           any server binary
#
#   PAIRS             most pairs of a workload (default 60; at least 6, fewer have no interval)
#   PAIRS_WITHIN      per cent that are wanted (default 3)
#   PAIRS_ONLY        workloads, by their names or parts of them, one to a line (default: all below)
#   PAIRS_DURABILITY  written or synced (default written)
#   BENCH_SCALE       per cent of the usual number of jobs (default 100: about a second for a run)
set -euo pipefail
cd "$(dirname "$0")/.."

most=${PAIRS:-60}
within=${PAIRS_WITHIN:-3}
scale=${BENCH_SCALE:-100}
durability=${PAIRS_DURABILITY:-written}
[ "$most" -ge 6 ] || { echo "PAIRS is $most: at least 6 are needed for an interval" >&2; exit 2; }
if [ -n "${BASE:-}" ] && [ -z "${1:-}" ]; then
    commit=$(git rev-parse --verify --quiet "$BASE^{commit}") || { echo "BASE=$BASE is no commit" >&2; exit 2; }
    place=target/pairs/${commit:0:12}
    other=$PWD/$place/build/${BENCH_PROFILE:-release}/corq
    if [ ! -x "$other" ]; then
        echo "building $BASE in $place" >&2
        git worktree prune
        [ -e "$place/tree/.git" ] || git worktree add --quiet --detach "$place/tree" "$commit"
        # The settings of cargo and the toolchain are those of that commit.
        (cd "$place/tree" && cargo build --quiet --profile "${BENCH_PROFILE:-release}" -p corq --bin corq --target-dir "../build")
        git worktree remove --force "$place/tree"
    fi
    versus="$BASE (${commit:0:12})"
else
    other=$(realpath "${1:?BASE=commit, or the server to compare with}")
    versus=$("$other" --version)
fi

name=pairs
. scripts/lib/measure.sh
# shellcheck source=scripts/lib/workloads.sh
. scripts/lib/workloads.sh
own=${BENCH_SERVER:-$bin/corq}
default=$'PUSH, 50 in flight\nPULL + ACK, 1 in flight\nPULL + ACK, 25 in flight\nPUSHB 100|\nPULLB + ACKB 100|\nPULLB + ACKB 1000'

chosen=()
while IFS= read -r wanted; do
    for index in "${!workloads[@]}"; do
        if [[ ${workloads[$index]} == *"$wanted"* ]]; then chosen+=("$index"); fi
    done
done <<<"${PAIRS_ONLY:-$default}"
[ "${#chosen[@]}" -gt 0 ] || { echo "PAIRS_ONLY names no workload" >&2; exit 2; }

run() { # this or other, index
    BENCH_SERVER=$own
    [ "$1" = this ] || BENCH_SERVER=$other
    start "DURABILITY=$durability"
    work_on "$2"
    take "$2.$1.cpu" "$(figure cpu_us_per_job)"
    take "$2.$1.user" "$(figure user_us_per_job)"
    # A build without the metric shows 0.
    take "$2.$1.rewritten" "$(metric corq_log_rewritten_bytes_total)"
    stop
}

# Whether the interval of the median of what was remembered is within so many per cent of it.
is_settled() { # file
    [ "$(wc -l <"$work/$1")" -ge 6 ] || return 1
    interval "$1" %.9f | tr -d '[],' | awk -v part="$within" '{ m = $1 * part / 100; exit !($1 - $2 <= m && $3 - $1 <= m) }'
}

ratios() { # index, cpu or user: the ratios within its pairs
    paste "$work/$1.this.$2" "$work/$1.other.$2" | awk '{ print ($2 > 0) ? $1 / $2 : 1 }' >"$work/$1.$2"
}

open=("${chosen[@]}")
for pair in $(seq "$most"); do
    [ "${#open[@]}" -gt 0 ] || break
    echo "pair $pair of at most $most, ${#open[@]} workloads" >&2
    order=(this other)
    [ $((pair % 2)) -eq 1 ] || order=(other this)
    still=()
    for index in "${open[@]}"; do
        for which in "${order[@]}"; do run "$which" "$index"; done
        ratios "$index" cpu
        ratios "$index" user
        if ! is_settled "$index.cpu" || ! is_settled "$index.user"; then still+=("$index"); fi
    done
    open=("${still[@]}")
done

printf '%s, %s CPUs; this server and %s; %s; 4 connections, 4 queues, 100-byte payloads; a fresh directory for each run.\n' \
    "$(uname -sr)" "$(nproc)" "$versus" "$durability"
printf 'Ratios are this / other within a pair: median [interval of 95 %%]. us = median of the CPU microseconds per job.\n\n'
printf '| work | pairs | this us, user | other us, user | user ratio | this us | other us | CPU ratio | MB rewritten, this and other |\n'
printf '|---|---|---|---|---|---|---|---|---|\n'
median() { spread "$1" "$2" | cut -d' ' -f1; } # file, format
for index in "${chosen[@]}"; do
    printf '| %s | %s | %s | %s | %s | %s | %s | %s | %s, %s |\n' "${workloads[$index]%%|*}" "$(wc -l <"$work/$index.cpu")" \
        "$(median "$index.this.user" %.3f)" "$(median "$index.other.user" %.3f)" "$(interval "$index.user" %.3f)" \
        "$(median "$index.this.cpu" %.3f)" "$(median "$index.other.cpu" %.3f)" "$(interval "$index.cpu" %.3f)" \
        "$(awk '{ s += $1 } END { printf "%.1f", s / 1e6 }' "$work/$index.this.rewritten")" \
        "$(awk '{ s += $1 } END { printf "%.1f", s / 1e6 }' "$work/$index.other.rewritten")"
done
if [ "${#open[@]}" -gt 0 ]; then
    printf '\nNot within %s per cent after %s pairs:' "$within" "$most"
    for index in "${open[@]}"; do printf ' %s;' "${workloads[$index]%%|*}"; done
    printf ' repeat with more PAIRS on a quieter machine.\n'
    exit 1
fi
