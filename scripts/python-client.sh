#!/usr/bin/env bash
# Installs the Python client that the tests use in a virtual environment below target/, once, and
# prints the path of its interpreter. The version is pinned, so that the tests do not change with
# its releases.
set -euo pipefail
cd "$(dirname "$0")/.."

client="bunqueue-client==0.1.5"
venv="${CARGO_TARGET_DIR:-target}/python-client"
python="$venv/bin/python"
mark="$venv/.installed"

# Two test binaries may come here at once.
mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock 9
if [ "$(cat "$mark" 2>/dev/null || true)" != "$client" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv" >&2
    "$python" -m pip install --quiet --disable-pip-version-check "$client" >&2
    echo "$client" >"$mark"
fi
printf '%s\n' "$(cd "$(dirname "$python")" && pwd)/python"
