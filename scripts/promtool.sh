#!/usr/bin/env bash
# Prints the path of promtool, which checks the Prometheus text: the installed one, or one that is
# extracted from the distribution's package below target/, once. Nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

if command -v promtool; then
    exit 0
fi
dir="${CARGO_TARGET_DIR:-target}/promtool"
tool="$dir/usr/bin/promtool"

# Two test binaries may come here at once.
mkdir -p "$dir"
exec 9>"$dir.lock"
flock 9
if [ ! -x "$tool" ]; then
    fetched="$(mktemp -d)"
    trap 'rm -rf "$fetched"' EXIT
    # The package lists of a fresh machine are empty.
    (cd "$fetched" && { apt-get download -q prometheus || { apt-get update -q && apt-get download -q prometheus; }; }) >&2
    dpkg -x "$fetched"/prometheus_*.deb "$dir"
fi
printf '%s\n' "$(cd "$(dirname "$tool")" && pwd)/promtool"
