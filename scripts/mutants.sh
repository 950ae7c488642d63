#!/bin/sh
# Changes the engine in one small way after the other and looks whether its tests notice. Takes files of
# shards/src on the command line (default: all of them), and MUTANTS_SHARD=k/n, of which it then does one part.
# What the tests of shards/ miss is tried once more with the simulator, MUTANTS_SEEDS (default 100) lives of it.
# The results stay in target/mutants; docs/mutants.md has the score.
set -eu
cd "$(dirname "$0")/.."
tools=$PWD/target/tools
out=$PWD/target/mutants

[ -x "$tools/bin/cargo-mutants" ] || cargo install cargo-mutants --locked --root "$tools"
PATH=$tools/bin:$PATH
export PATH

files=
for file in "$@"; do
    files="$files --file shards/src/$file"
done
part=
[ -z "${MUTANTS_SHARD:-}" ] || part="--shard $MUTANTS_SHARD"

mkdir -p "$out"
# 2 and 3 say that some were missed or took too long, which is what this is for.
# shellcheck disable=SC2086
nice -n 19 cargo mutants --package corq-shards --test-package corq-shards --jobs 1 --no-shuffle \
    --colors never --output "$out" $files $part || [ $? -le 3 ]

missed=$out/mutants.out/missed.txt
[ -s "$missed" ] || exit 0
if [ "${MUTANTS_SEEDS:-100}" -eq 0 ]; then
    cat "$missed"
    exit 1
fi
# Those again, by their names, before the simulator.
cp "$missed" "$out/missed-by-tests.txt"
mkdir -p "$out/sim"
names=$(sed -e 's/[][\.*^$()+?{}|\\]/\\&/g' "$out/missed-by-tests.txt" | paste -sd '|')
CORQ_SIM_SEEDS=${MUTANTS_SEEDS:-100} nice -n 19 cargo mutants --package corq-shards --test-package corq-sim \
    --jobs 1 --no-shuffle --colors never --output "$out/sim" --re "$names" -- --test sim || [ $? -le 3 ]
echo "missed by the tests and by the simulator:"
cat "$out/sim/mutants.out/missed.txt"
