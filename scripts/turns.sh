#!/bin/sh
# The longest turn of every command of the table at its bounds: a million jobs in a queue, batches of 10,000, families
# of 9,999, 400,000 groups, 10,000 queues, schedules and workers, payloads of 10 MB. Prints the most steps of each kind of work
# in one turn and the length of the longest turn that it took most of; fails if one is above 5 ms, of a batch above 20. Takes a quiet
# machine, 4 GB of memory, 8 GB of disk below TMPDIR and some minutes. TURNS_ONLY=PUSH,Drain plays only these.
set -eu
cd "$(dirname "$0")/.."

CORQ_TURNS=full CORQ_TURNS_ONLY=${TURNS_ONLY:-} \
    cargo test --release -p corq-tests --test system every_command -- --nocapture
