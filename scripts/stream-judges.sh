#!/usr/bin/env bash
# Puts the WebSocket and SSE clients that judge the server below target/, once: `stream-judges.sh
# python` prints the path of an interpreter that has them, `stream-judges.sh node` that of a directory
# with node_modules. Versions are pinned: an outside judge must not change under the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

target="${CARGO_TARGET_DIR:-target}"
mkdir -p "$target"
exec 9>"$target/stream-judges.lock"
flock 9
case "${1:-}" in
python)
    judges=(websockets==17.4 wsproto==1.3.2 httpx==0.28.1 httpx-sse==0.4.3)
    home="$target/stream-judges-python"
    if [ "$(cat "$home/.installed" 2>/dev/null || true)" != "${judges[*]}" ]; then
        rm -rf "$home"
        python3 -m venv "$home" >&2
        "$home/bin/python" -m pip install --quiet --disable-pip-version-check "${judges[@]}" >&2
        echo "${judges[*]}" >"$home/.installed"
    fi
    printf '%s\n' "$(cd "$home/bin" && pwd)/python"
    ;;
node)
    judge="ws@8.18.3"
    home="$target/stream-judges-node"
    if [ "$(cat "$home/.installed" 2>/dev/null || true)" != "$judge" ]; then
        rm -rf "$home"
        mkdir -p "$home"
        npm install --silent --no-audit --no-fund --prefix "$home" "$judge" >&2
        echo "$judge" >"$home/.installed"
    fi
    (cd "$home" && pwd)
    ;;
*)
    echo "usage: $0 python|node" >&2
    exit 2
    ;;
esac
