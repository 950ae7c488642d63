# The standard workloads, of `make bench` and of `make pairs`. Sourced; `scale` is the percentage of the usual number of jobs.
# shellcheck shell=bash disable=SC2034,SC2154
load=(--connections 4 --queues 4 --payload-bytes 100)

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

work_on() { # index: runs it against the server that was started
    local jobs arguments
    IFS='|' read -r _ jobs arguments <<<"${workloads[$1]}"
    # shellcheck disable=SC2086 # the arguments are words on purpose
    bench $arguments --jobs $((jobs * scale / 100)) "${load[@]}"
}
