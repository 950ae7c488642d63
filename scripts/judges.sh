#!/usr/bin/env bash
# Installs independent clients that test the server below target/, once, and prints the path of one:
#
#   judges.sh python    an interpreter that has WebSocket and SSE clients
#   judges.sh node      a directory with node_modules that has a WebSocket client
#   judges.sh bun3      a directory with node_modules that has the npm client of version 3 of the protocol, and bun
#   judges.sh bun2      the same with the last client of version 2
#   judges.sh api       schemathesis, which tests an API by its OpenAPI document
#   judges.sh browser   a headless Chromium
#   judges.sh page      a directory with node_modules that drives it, and looks whether all can use a page
#   judges.sh nginx     nginx, a proxy
#   judges.sh wrk       wrk, a load generator for HTTP
#   judges.sh testssl   testssl.sh, which checks for known TLS vulnerabilities
#   judges.sh redis     redis-server, for the job queues that keep their jobs there
#   judges.sh bullmq    a directory with node_modules that has BullMQ
#   judges.sh beanstalkd    beanstalkd
#
# Versions are pinned, as an independent client must not change under the tests; but for Chromium, nginx, wrk, testssl.sh, Redis and beanstalkd, which are the
# installed ones, or those of the distribution, taken out of its packages. Nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

target="${CARGO_TARGET_DIR:-target}"
kind="${1:-}"
home="$target/judges-$kind"
mkdir -p "$target"
# Two test binaries may come here at once.
exec 9>"$home.lock"
flock 9

# Makes the directory anew by the function of that name, unless it has been made for these versions.
once() { # versions
    if [ "$(cat "$home/.installed" 2>/dev/null || true)" != "$*" ]; then
        rm -rf "$home"
        mkdir -p "$home"
        "install_$kind" "$@" >&2
        echo "$*" >"$home/.installed"
    fi
}

install_python() {
    python3 -m venv "$home"
    "$home/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

install_api() {
    install_python "$@"
}

install_node() {
    npm install --silent --no-audit --no-fund --prefix "$home" "$@"
}

install_bun3() {
    install_node "$@"
}

install_bun2() {
    install_node "$@"
}

# A package of the distribution, and those that it needs beside what is installed, unpacked into one tree.
unpack() { # package, its program
    local packages
    packages="$(missing "$1" || { apt-get update -q >&2 && missing "$1"; })"
    mkdir "$home/packages"
    # shellcheck disable=SC2086 # names of packages
    (cd "$home/packages" && apt-get download -q $packages)
    for package in "$home"/packages/*.deb; do
        dpkg -x "$package" "$home"
    done
    rm -r "$home/packages"
    cat >"$home/run" <<WRAPPER
#!/bin/sh
home="\$(dirname "\$0")"
LD_LIBRARY_PATH="\$(find "\$home/usr/lib" -type d -name '*-linux-gnu*' -printf '%p:%p/pulseaudio:')"
export LD_LIBRARY_PATH
exec "\$home/$2" "\$@"
WRAPPER
    chmod +x "$home/run"
}

install_page() {
    install_node "$@"
}

install_nginx() {
    unpack "$1" usr/sbin/nginx
}

install_browser() {
    unpack "$1" usr/lib/chromium/chromium-headless-shell
}

install_bullmq() {
    install_node "$@"
}

install_redis() {
    unpack "$1" usr/bin/redis-server
}

install_beanstalkd() {
    unpack "$1" usr/bin/beanstalkd
}

install_wrk() {
    unpack "$1" usr/bin/wrk
}

install_testssl() {
    unpack "$1" usr/bin/testssl
    # Its script looks for its data where its package would have put them.
    sed -i "s|^exec|TESTSSL_INSTALL_DIR=\"\$home/etc/testssl\" PATH=\"\$home/usr/bin:\$PATH\" exec|" "$home/run"
}

missing() {
    apt-get install --simulate --no-install-recommends "$@" | sed -n 's/^Inst \([^ ]*\) .*/\1/p'
}

case "$kind" in
python)
    once websockets==17.4 wsproto==1.3.2 httpx==0.28.1 httpx-sse==0.4.3
    printf '%s\n' "$(cd "$home/bin" && pwd)/python"
    ;;
api)
    once schemathesis==4.32.5
    printf '%s\n' "$(cd "$home/bin" && pwd)/schemathesis"
    ;;
node)
    once ws@8.18.3
    (cd "$home" && pwd)
    ;;
bun3)
    once bun@1.4.5 bunqueue@2.9.5
    (cd "$home" && pwd)
    ;;
bun2)
    once bun@1.4.5 bunqueue@2.8.39
    (cd "$home" && pwd)
    ;;
browser)
    for installed in chromium-headless-shell chromium chromium-browser google-chrome; do
        command -v "$installed" && exit 0
    done
    once chromium-headless-shell
    printf '%s\n' "$(cd "$home" && pwd)/run"
    ;;
page)
    once playwright-core@1.65.1 axe-core@4.14.1
    (cd "$home" && pwd)
    ;;
nginx)
    command -v nginx && exit 0
    once nginx
    printf '%s\n' "$(cd "$home" && pwd)/run"
    ;;
wrk)
    command -v wrk && exit 0
    once wrk
    printf '%s\n' "$(cd "$home" && pwd)/run"
    ;;
testssl)
    command -v testssl && exit 0
    once testssl.sh
    printf '%s\n' "$(cd "$home" && pwd)/run"
    ;;
redis)
    command -v redis-server && exit 0
    once redis-server
    printf '%s\n' "$(cd "$home" && pwd)/run"
    ;;
bullmq)
    once bullmq@5.81.5 ioredis@5.11.1
    (cd "$home" && pwd)
    ;;
beanstalkd)
    command -v beanstalkd && exit 0
    once beanstalkd
    printf '%s\n' "$(cd "$home" && pwd)/run"
    ;;
*)
    echo "usage: $0 python|node|bun3|bun2|api|browser|page|nginx|wrk|testssl|redis|bullmq|beanstalkd" >&2
    exit 2
    ;;
esac
