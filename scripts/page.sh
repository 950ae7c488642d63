#!/usr/bin/env bash
# Writes docs/benchmarks.md with its plots: measures everything on that page, interleaved. Takes about an hour on an otherwise
# idle machine.
#
#   scripts/page.sh [rounds]        default 3
#
#   PAGE_RATES   jobs/s of the latency runs (default 1000,5000,20000,50000)
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
place=target/page
mkdir -p "$place"
[ -x "$place/venv/bin/python" ] || python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --requirement bench/page/requirements.txt

python3 -m unittest discover --quiet --start-directory bench/page
scripts/pgo.sh >/dev/null
export BENCH_SERVER=target/pgo/corq

bench/rivals/run --rounds "$rounds" --rates "${PAGE_RATES:-1000,5000,20000,50000}" --json "$place/rivals.json" >"$place/rivals.md"
for script in bench flat shards recovery reclaim fair many floors; do
    "scripts/$script.sh" "$rounds" >"$place/$script.new"
    mv "$place/$script.new" "$place/$script.md"
done
"$place/venv/bin/python" bench/page/make.py "$place"
