#!/usr/bin/env bash
# Runs the test scripts of the clients (tests/clients/bun, tests/clients/python) against the reference server of npm, at the release
# that each client belongs to. corq passes all of them, so every failure here is a difference, and docs/compatibility.md lists it
# with its reason. Prints a line per test; a failure there is no error of this script.
#
#   scripts/reference.sh [name of a promise]
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d "${TMPDIR:-/tmp}/corq-reference.XXXXXX")
server=
stop() {
    [ -z "$server" ] && return
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
trap 'stop; rm -rf "$work"' EXIT
# shellcheck source=scripts/lib/ports.sh
. scripts/lib/ports.sh

start() { # directory with the reference server
    rm -rf "$work/data"
    mkdir "$work/data"
    tcp=$(free_port)
    env HOST=127.0.0.1 TCP_PORT="$tcp" HTTP_PORT="$(free_port)" DATA_PATH="$work/data/queue.db" BUNQUEUE_DATA_PATH="$work/data/queue.db" \
        RATE_LIMIT_MAX_REQUESTS=1000000000 LOG_LEVEL=error \
        "$1/node_modules/.bin/bun" "$1/node_modules/bunqueue/dist/cli/index.js" start >"$work/log" 2>&1 &
    server=$!
    until (exec 3<>"/dev/tcp/127.0.0.1/$tcp") 2>/dev/null; do
        kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
        sleep 0.05
    done
}

for version in 2 3; do
    home=$(scripts/judges.sh "bun$version")
    start "$home"
    echo "== npm client of version $version, reference server of the same release"
    (cd "$home" && CORQ_SPEAKS=$version node_modules/.bin/bun "$OLDPWD/tests/clients/bun/suite.mjs" "$tcp" "$@") || true
    stop
done
start "$(scripts/judges.sh bun2)"
echo "== Python client, reference server of version 2"
"$(scripts/python-client.sh)" tests/clients/python/suite.py "$tcp" 2>&1 || true
