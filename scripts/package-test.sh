#!/usr/bin/env bash
# Installs, upgrades, removes and purges the packages in a root of their own, a minimal Debian below target/, and lets the
# server run there as its unit says. A Prometheus beside that root scrapes it with the settings and the alerts of the package.
# An upgrade is made under load: every job whose push was acknowledged must have been completed or be there after it, and none
# whose completion was acknowledged may be delivered again. Needs root, mmdebstrap or debootstrap, lintian, rpm, Python, and
# the network once (also for Prometheus, unless it is installed).
#
#   scripts/package-test.sh [deb|rpm ...]      # of the packages in target/dist (make packages)
#   PACKAGE_TEST_COMMAND=...                   # what starts the server instead of the unit's ExecStart
set -euo pipefail
given=("$@")
cd "$(dirname "$0")/.."
[ "$(id -u)" -eq 0 ] || { echo "package-test: it needs root, for a root directory of its own" >&2; exit 1; }

out=$PWD/target/dist
arch=$(uname -m)
deb_arch=$(dpkg --print-architecture)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
next=$version+next
# Whose keys this machine has.
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
place=$PWD/target/package-test
base=$place/base.tar
root=$place/root
mkdir -p "$place"
[ -x "$out/stage/$arch/bin/corq" ] || { echo "package-test: make packages first" >&2; exit 1; }
if ! [ -f "$base" ]; then
    if command -v mmdebstrap >/dev/null; then
        mmdebstrap --quiet --variant=minbase --include=systemd,init-system-helpers,adduser "$suite" "$base" >&2
    else
        debootstrap --variant=minbase --include=systemd,init-system-helpers,adduser "$suite" "$place/bootstrap" >&2
        tar --create --directory "$place/bootstrap" --file "$base" . && rm -rf "$place/bootstrap"
    fi
fi

# Of the same package as promtool.
prometheus=$(dirname "$(scripts/promtool.sh)")/prometheus
[ -x "$prometheus" ] || { echo "package-test: $prometheus is needed" >&2; exit 1; }

# A network of its own, where the ports of the packages are free whatever runs on this machine.
if [ -z "${PACKAGE_TEST_NETWORK:-}" ] && command -v ip >/dev/null && unshare --net true 2>/dev/null; then
    exec unshare --net env PACKAGE_TEST_NETWORK=own scripts/package-test.sh "${given[@]}"
fi
[ -z "${PACKAGE_TEST_NETWORK:-}" ] || ip link set lo up

# Another version of the same program: what is tried is the package.
PACKAGES_ONLY=1 scripts/packages.sh "$arch" >/dev/null
rm -rf "$place/next" && mkdir -p "$place/next" && ln -s "$out/stage" "$place/next/stage"
DIST_DIR=$place/next PACKAGES_ONLY=1 PACKAGE_QUICK=1 PACKAGE_VERSION=$next scripts/packages.sh "$arch" >/dev/null

failed=0 server= watcher= clients=()
watcher_url=http://127.0.0.1:9090
promise() {
    local what=$1
    shift
    if "$@" >"$place/said" 2>&1; then
        echo "ok: $what"
    else
        failed=1
        { echo "FAILED: $what" && tail -n 5 "$place/said"; } >&2
    fi
}
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }
stop() {
    [ -z "$server" ] || { kill -TERM "$server" 2>/dev/null && wait "$server"; } || true
    server=
}
unwatch() {
    [ -z "$watcher" ] || { kill -TERM "$watcher" 2>/dev/null && wait "$watcher"; } || true
    watcher=
}
clean_up() {
    rm -f "$place/loading"
    [ ${#clients[@]} -eq 0 ] || wait "${clients[@]}" || true
    clients=()
    stop
    unwatch
    ! mountpoint -q "$root/proc" || umount "$root/proc"
    rm -rf "$root"
}
trap clean_up EXIT

fresh_root() {
    clean_up
    mkdir -p "$root"
    tar --extract --directory "$root" --file "$base"
    mount -t proc proc "$root/proc"
}

# As the unit does it: the same command, user and directory.
start() {
    local unit=$root/usr/lib/systemd/system/corq.service command
    command=${PACKAGE_TEST_COMMAND:-$(sed -n 's/^ExecStart=//p' "$unit")}
    # shellcheck disable=SC2086
    chroot --userspec=corq:corq "$root" /usr/bin/env -i PATH=/usr/bin:/bin sh -c "cd /var/lib/corq && exec $command" >"$place/server.log" 2>&1 &
    server=$!
    for _ in $(seq 300); do
        inside corq health >/dev/null 2>&1 && return
        sleep 0.2
    done
    tail -n 20 "$place/server.log" >&2
    echo "FAILED: the server is not healthy" >&2
    exit 1
}

# Changes the settings by hand, and has the server read them again as the unit does it.
changed='shutdown_timeout_ms = 29000'
reload() {
    local command
    inside sh -c "echo '$changed' >>/etc/corq/corq.toml"
    command=$(sed -n 's/^ExecReload=//p' "$root/usr/lib/systemd/system/corq.service")
    # systemd makes one of two dollars.
    inside MAINPID="$server" sh -c "${command//\$\$/\$}" || return
    for _ in $(seq 300); do
        ! grep -q 'SHUTDOWN_TIMEOUT_MS 30000 -> 29000' "$place/server.log" || return 0
        sleep 0.2
    done
    tail -n 3 "$place/server.log"
    return 1
}

# A Prometheus with what the package has for it, as if it ran on the same machine. Only the intervals are shorter.
watch() {
    local shipped=$root/usr/share/corq/prometheus
    rm -rf "$place/prometheus" && mkdir -p "$place/prometheus"
    cp "$shipped"/*.yml "$place/prometheus/"
    sed -i -E 's/^( *(scrape|evaluation)_interval:).*/\1 1s/' "$place/prometheus/prometheus.yml"
    "$prometheus" --config.file="$place/prometheus/prometheus.yml" --storage.tsdb.path="$place/prometheus/data" \
        --web.listen-address="${watcher_url#http://}" >"$place/prometheus.log" 2>&1 &
    watcher=$!
}

# What Prometheus says of the server: up, restarted, or pending with an alert.
watched() {
    python3 scripts/lib/watched.py "$watcher_url" "$root/usr/share/corq/prometheus/alerts.yml" \
        "$root/usr/share/corq/grafana/corq.json" "$@"
}

# $1: which of the producers. Pushes jobs one by one, and writes down which were acknowledged, until it is stopped.
produce() {
    local n=$(($1 * 1000000))
    while [ -e "$place/loading" ]; do
        n=$((n + 1))
        ! inside corq push upgrade "{\"n\": $n}" >/dev/null 2>&1 || echo $n >>"$place/acknowledged"
    done
}

# Completes jobs one by one, and writes down which completions were acknowledged. Of one without an answer it keeps the id.
work() {
    local job n id token
    while [ -e "$place/loading" ]; do
        job=$(inside corq pull upgrade --timeout 1s --json 2>/dev/null) || continue
        n=$(field n "$job") id=$(field id "$job") token=$(field token "$job")
        if inside corq ack "$id" --lock-token "$token" >/dev/null 2>&1; then
            echo "$n" >>"$place/completed"
        else
            echo "$n $id" >>"$place/doubtful"
        fi
    done
}

# $1: name, $2: reply as JSON. The values under that name.
field() { grep -oE "\"$1\":(\"[^\"]*\"|[0-9]+)" <<<"$2" | sed -E 's/^[^:]*:"?([^"]*)"?$/\1/'; }

missing() { sort -u "$place/acknowledged" | comm -23 - <(sort -u "$place/completed" "$place/delivered"); }

lines() { wc -l <"$place/$1"; }

# $1: how to install the next version over this one.
upgrade_under_load() {
    local before id n reply doubtful=0
    for n in acknowledged completed doubtful delivered; do : >"$place/$n"; done
    touch "$place/loading"
    for n in 1 2 3; do produce $n & clients+=($!); done
    for n in 1 2; do work & clients+=($!); done
    until [ "$(lines acknowledged)" -ge 60 ] && [ "$(lines completed)" -ge 40 ]; do sleep 0.1; done
    promise "$1: the next version installs" "$1_install" "$place/next"
    # There is no systemd in this root, so the restart of the package's script is done here.
    stop
    start
    before=$(lines acknowledged) n=$(lines completed)
    until [ "$(lines acknowledged)" -ge $((before + 60)) ] && [ "$(lines completed)" -ge $((n + 40)) ]; do sleep 0.1; done
    rm "$place/loading"
    wait "${clients[@]}"
    clients=()
    # The server may have completed a job without its worker getting the answer.
    while read -r n id; do
        doubtful=$((doubtful + 1))
        [ "$(inside corq job state "$id")" != completed ] || echo "$n" >>"$place/completed"
    done <"$place/doubtful"
    # A job that a worker pulled without getting the answer comes again when its lock has ended.
    for _ in $(seq 300); do
        reply=$(inside corq pull upgrade --count 1000 --timeout 1s --lock-ttl 1h --json 2>/dev/null) || true
        if ! field n "$reply" >>"$place/delivered" && [ -z "$(missing)" ]; then break; fi
    done
    promise "$1: all $(lines acknowledged) jobs whose push was acknowledged before, in and after the upgrade were completed or are there" \
        test -z "$(missing)"
    promise "$1: of the $(lines completed) jobs that were completed ($doubtful in doubt) none is delivered again" \
        test -z "$(comm -12 <(sort -u "$place/completed") <(sort -u "$place/delivered"))"
    promise "$1: each of the others ($(lines delivered)) is delivered once" test -z "$(sort "$place/delivered" | uniq -d)"
}

common_promises() {
    promise "$1: the program runs" inside corq --version
    promise "$1: its user exists" inside getent passwd corq
    promise "$1: the data directory is the user's alone" test "$(inside stat -c '%U:%G %a' /var/lib/corq)" = 'corq:corq 750'
    promise "$1: the settings are the group's to read" test "$(inside stat -c '%U:%G %a' /etc/corq/corq.toml)" = 'root:corq 640'
    promise "$1: the unit is sound" inside systemd-analyze verify --man=no /usr/lib/systemd/system/corq.service
    promise "$1: there is a page for every command" test -e "$root/usr/share/man/man1/corq-queue-list.1.gz"
    promise "$1: what it is watched with is there" test -e "$root/usr/share/corq/prometheus/runbook.md" -a -e "$root/usr/share/corq/grafana/corq.json"
    promise "$1: there are completions" test -e "$root/usr/share/bash-completion/completions/corq"
}

deb_install() {
    mkdir -p "$root/packages" && cp "$1"/corq_*_"$deb_arch".deb "$root/packages/"
    inside sh -c 'dpkg --force-confold -i /packages/*.deb'
    rm -r "$root/packages"
}

try_deb() {
    promise "deb: lintian has no complaint" lintian --fail-on error,warning "$out/corq_${version}_$deb_arch.deb"
    fresh_root
    promise "deb: it installs" deb_install "$out"
    common_promises deb
    promise "deb: the files are as the package says" inside dpkg --verify corq
    start
    # Metrics of queues begin with one.
    inside corq push watched 1 >/dev/null
    watch
    promise "deb: Prometheus scrapes it, and evaluates the alerts of the package without an error" watched up
    promise "deb: a reload as the unit does it reads the settings again" reload
    upgrade_under_load deb
    promise "deb: Prometheus has seen the upgrade, and no alert fires" watched restarted
    promise "deb: the version is the next" test "$(inside dpkg-query -W -f '${Version}' corq)" = "$next"
    promise "deb: changed settings stay" inside grep -q "$changed" /etc/corq/corq.toml
    stop
    promise "deb: Prometheus sees that the server is down" watched pending CorqDown
    unwatch
    promise "deb: it is removed" inside dpkg -r corq
    promise "deb: the program is gone" test ! -e "$root/usr/bin/corq"
    promise "deb: settings and jobs stay" test -e "$root/etc/corq/corq.toml" -a -d "$root/var/lib/corq/shard-0000"
    promise "deb: it installs again over them" deb_install "$out"
    promise "deb: it is purged" inside dpkg -P corq
    promise "deb: the settings are gone, the jobs are not" test ! -e "$root/etc/corq/corq.toml" -a -d "$root/var/lib/corq/shard-0000"
}

rpm_install() { rpm --root "$root" --nodeps -U --oldpackage "$1"/corq-*-1."$arch".rpm; }

# In a root of Debian: its scripts and files are tried, not what it asks of Fedora.
try_rpm() {
    fresh_root
    promise "rpm: it installs" rpm_install "$out"
    common_promises rpm
    promise "rpm: the files are as the package says" rpm --root "$root" -V --nodeps corq
    start
    # Metrics of queues begin with one.
    inside corq push watched 1 >/dev/null
    watch
    promise "rpm: Prometheus scrapes it, and evaluates the alerts of the package without an error" watched up
    promise "rpm: a reload as the unit does it reads the settings again" reload
    upgrade_under_load rpm
    promise "rpm: Prometheus has seen the upgrade, and no alert fires" watched restarted
    promise "rpm: the version is the next" test "$(rpm --root "$root" -q --qf '%{version}' corq)" = "$next"
    promise "rpm: changed settings stay" inside grep -q "$changed" /etc/corq/corq.toml
    stop
    promise "rpm: Prometheus sees that the server is down" watched pending CorqDown
    unwatch
    promise "rpm: it is removed" rpm --root "$root" -e --nodeps corq
    promise "rpm: the program is gone" test ! -e "$root/usr/bin/corq"
    promise "rpm: changed settings and jobs stay" test -e "$root/etc/corq/corq.toml.rpmsave" -a -d "$root/var/lib/corq/shard-0000"
}

kinds=("${given[@]}")
[ ${#kinds[@]} -gt 0 ] || kinds=(deb rpm)
for kind in "${kinds[@]}"; do "try_$kind"; done
exit $failed
