#!/bin/sh
# Sends random valid commands of every kind to the real server, with debug assertions, for TORTURE_SECONDS
# (default 3600). TORTURE_SEED sets the first seed, TORTURE_SANITIZER=address uses a server built
# with that sanitizer. A failure prints its seed and a file with the last commands.
set -eu
cd "$(dirname "$0")/.."

if [ -n "${TORTURE_SANITIZER:-}" ]; then
    host=$(rustc -vV | sed -n 's/^host: //p')
    # The sanitizers need a flag that a stable compiler takes only when told so.
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=$TORTURE_SANITIZER" \
        cargo build --bin corq --target "$host" --target-dir "$PWD/target/sanitized"
    CORQ_TORTURE_BIN="$PWD/target/sanitized/$host/debug/corq"
    export CORQ_TORTURE_BIN
fi

CORQ_TORTURE_SECONDS=${TORTURE_SECONDS:-3600} CORQ_TORTURE_SEED=${TORTURE_SEED:-$(date +%s)} \
    cargo test -p corq-tests --test system commands_of_every_kind -- --nocapture
