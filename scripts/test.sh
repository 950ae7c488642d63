#!/usr/bin/env bash
# Runs `cargo test` with these arguments, all tests whatever fails. Each test that failed then runs once more, alone.
# One that passes is printed as `flaky: NAME` with its first failure; up to FLAKY_MAX (default 2) of them are let through.
# The last lines name each test that failed twice, its message, and the command that repeats it.
set -uo pipefail
cd "$(dirname "$0")/.."

out=${CARGO_TARGET_DIR:-target}/test-log
mkdir -p "$out"
first=$(mktemp -d "$out/XXXXXX")
trap 'rm -rf "$first"' EXIT
# A test mostly waits for a server.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) * 4))}

cargo test --no-fail-fast "$@" 2>&1 | tee "$first/log"
code=${PIPESTATUS[0]}
[ "$code" -ne 0 ] || exit 0

# What a failed test printed: the first lines of its section.
message() { # log, name
    awk -v name="---- $2 stdout ----" '$0 == name { on = 1; next } /^(---- |failures:)/ { on = 0 } on && NF && n++ < 8 { print "    " $0 }' "$1"
}

sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$first/log" | sed 's/ - should panic$//' | sort -u >"$first/failed"
# A program that was killed, or was not built, has told nothing of its other tests.
broken=$(grep -E '^error: could not compile|process didn.t exit successfully: .*\(signal: ' "$first/log")
if [ ! -s "$first/failed" ] || [ -n "$broken" ]; then
    echo "failed: a test program was not built, or did not end by itself"
    printf '%s\n' "$broken" | sed 's/^/    /'
    sed 's/^/    seen to fail: /' "$first/failed"
    exit "$code"
fi

flaky=0 failed=0
while IFS= read -r name; do
    if cargo test "$@" -- --exact "$name" </dev/null >"$first/again" 2>&1; then
        flaky=$((flaky + 1))
        { echo "flaky: $name"; message "$first/log" "$name"; } >>"$first/said"
    else
        failed=$((failed + 1))
        { echo "failed: $name"; message "$first/again" "$name"; echo "    again: cargo test $* -- --exact '$name'"; } >>"$first/said"
    fi
done <"$first/failed"
cat "$first/said"
echo "$failed tests failed twice; $flaky are flaky, ${FLAKY_MAX:-2} at most may be"
[ "$failed" -eq 0 ] && [ "$flaky" -le "${FLAKY_MAX:-2}" ]
