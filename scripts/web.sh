#!/usr/bin/env bash
# Checks the types of the dashboard and builds it from web/ into web/dist, or into a directory that is given. Needs Node.js
# and npm; what it builds with comes from the registry in the versions of web/package-lock.json, once. The build of the
# server needs none of this: web/dist is part of the repository.
set -euo pipefail
cd "$(dirname "$0")/.."

out="$(realpath -m "${1:-web/dist}")"
for tool in node npm; do
    command -v "$tool" >/dev/null || {
        echo "the dashboard is built with Node.js 20 or later and npm: $tool is missing" >&2
        exit 1
    }
done
# Two test binaries may come here at once.
mkdir -p "${CARGO_TARGET_DIR:-target}"
exec 9>"${CARGO_TARGET_DIR:-target}/web.lock"
flock 9
if ! cmp -s web/package-lock.json web/node_modules/.installed; then
    npm ci --silent --no-audit --no-fund --ignore-scripts --prefix web >&2
    cp web/package-lock.json web/node_modules/.installed
fi
cd web
node_modules/.bin/tsc --noEmit
node test.mjs
node build.mjs "$out"
