#!/bin/sh
# Mutation tests of the engine. Takes files of shards/src on the command line (default: all of them), and
# MUTANTS_SHARD=k/n to run one part of n.
#
# In three steps, each over the survivors of the previous one: the quick tests of shards/, all of its tests including the
# random ones, and MUTANTS_SEEDS (default 100) seeds of the simulator. The results stay in target/mutants; docs/mutants.md
# has the score.
set -eu
cd "$(dirname "$0")/.."
tools=$PWD/target/tools
out=$PWD/target/mutants

[ -x "$tools/bin/cargo-mutants" ] || cargo install cargo-mutants --locked --root "$tools"
# A loop that a mutant has made endless takes memory until there is none.
ulimit -v "${MUTANTS_MEMORY_KB:-8000000}"

PATH=$tools/bin:$PATH
export PATH

# In a tree of its own, so that nobody else is changed meanwhile. All of it is new to cargo: what an aborted run has left
# in the build would count as built from it otherwise, with its mutant.
tree=$out/tree
rm -rf "$tree"
mkdir -p "$tree"
git ls-files -z -co --exclude-standard | tar --null -T - -cf - | tar -mxf - -C "$tree"
CARGO_TARGET_DIR=$out/build
export CARGO_TARGET_DIR

# Mutants: where the results go, which ones, and what is tried on them.
mutants() {
    step=$out/$1
    shift
    rm -rf "$step"
    mkdir -p "$step"
    # 2 and 3 say that some were missed or took too long, which is what this is for.
    nice -n "${MUTANTS_NICE:-19}" cargo mutants --dir "$tree" --in-place --package corq-shards --no-shuffle --colors never \
        --output "$step" "$@" || [ $? -le 3 ]
    missed=$step/mutants.out/missed.txt
}

# What was missed, as one pattern.
again() { sed -e 's/[][\.*^$()+?{}|\\]/\\&/g' "$missed" | paste -sd '|'; }

for file in "$@"; do
    shift
    set -- "$@" --file "shards/src/$file"
done
[ -z "${MUTANTS_SHARD:-}" ] || set -- "$@" --shard "$MUTANTS_SHARD" --sharding round-robin

mutants quick --test-package corq-shards "$@" -- -- --skip live_state_at_every_moment --skip random_lives \
    --skip upkeep:: --skip a_damaged_record --skip clocks_that_are_set_anywhere --skip events_tell_what_became
[ -s "$missed" ] || exit 0
mutants whole --test-package corq-shards --re "$(again)"
[ -s "$missed" ] || exit 0
if [ "${MUTANTS_SEEDS:-100}" -gt 0 ]; then
    CORQ_SIM_SEEDS=${MUTANTS_SEEDS:-100} mutants sim --no-config --profile mutants --test-package corq-sim \
        --re "$(again)" -- --test sim
fi
echo "missed by all of them:"
cat "$missed"
