#!/usr/bin/env bash
# Runs the image as compose.yaml and the manifests do: read-only, as user 10001, without capabilities, with the seccomp
# profile. It serves, is healthy by its own health check, stops on SIGTERM, keeps its jobs in the volume, and says what
# to do where a runtime forbids io_uring. Needs podman, and root or its rootless set-up.
#
#   scripts/image-test.sh
set -euo pipefail
cd "$(dirname "$0")/.."
command -v podman >/dev/null || { echo "image-test: podman is needed: apt-get install podman crun" >&2; exit 1; }
image=${1:-$(IMAGE_TOOL=podman scripts/image.sh | tail -n 1)}
name=corq-image-test-$$
volume=$name-data
profile=packaging/container/seccomp.json
trap 'podman rm --force --time 0 "$name" >/dev/null 2>&1 || true; podman volume rm --force "$volume" >/dev/null 2>&1 || true' EXIT
failed=0
# $1: what is promised; the rest: a command that must succeed.
promise() {
    local what=$1
    shift
    if "$@" >/dev/null 2>&1; then echo "ok: $what"; else echo "FAILED: $what" >&2 && failed=1; fi
}
# The limits of this shell, since only some machines let containers have higher ones; -1 is none.
limit() { ulimit -H "-$1" | sed 's/unlimited/-1/'; }
kib=$(limit l)
tight=(--read-only --cap-drop ALL --security-opt no-new-privileges --network none --health-interval disable
    --ulimit "nofile=$(limit n)" --ulimit nproc=4096 --ulimit "memlock=$([ "$kib" = -1 ] && echo -1 || echo $((kib * 1024)))")
# The runtime that podman takes by itself does not run on every machine (crun: not where both versions of cgroups are mounted).
runtime=()
if ! podman run --rm "${tight[@]}" "$image" --version >/dev/null 2>&1; then
    command -v runc >/dev/null && runtime=(--runtime runc)
    podman "${runtime[@]}" run --rm "${tight[@]}" "$image" --version
fi
podman() { command podman "${runtime[@]}" "$@"; }
start() {
    podman run --detach --name "$name" "${tight[@]}" --security-opt "seccomp=$profile" --volume "$volume:/data" "$image" >/dev/null
    for _ in $(seq 300); do
        podman exec "$name" /corq health >/dev/null 2>&1 && return
        sleep 0.2
    done
    podman logs "$name" >&2
    echo "FAILED: it is not healthy" >&2
    exit 1
}
inspect() { podman inspect --format "$1" "$2"; }

promise "the user is 10001" test "$(inspect '{{.Config.User}}' "$image")" = 10001:10001
promise "it stops by SIGTERM" test "$(inspect '{{.Config.StopSignal}}' "$image")" = SIGTERM
podman volume create "$volume" >/dev/null
start
promise "the process has no capabilities and a seccomp filter" \
    sh -c "grep -q 'CapEff:.0000000000000000' /proc/$(inspect '{{.State.Pid}}' "$name")/status && grep -q 'Seccomp:.2' /proc/$(inspect '{{.State.Pid}}' "$name")/status"
promise "its health check passes" podman healthcheck run "$name"
for n in 1 2 3; do podman exec "$name" /corq push emails "{\"n\": $n}" >/dev/null; done
promise "it stops within its time" podman stop --time 40 "$name"
promise "a stop is no failure" test "$(inspect '{{.State.ExitCode}}' "$name")" = 0
podman rm "$name" >/dev/null
start
promise "the volume keeps the jobs" test "$(podman exec "$name" /corq stats --json | grep -o '"waiting":3' | head -n 1)" = '"waiting":3'
podman rm --force --time 40 "$name" >/dev/null

# The profile with io_uring taken out again, with both numbers that runtimes refuse with.
for number in 38 1; do
    forbidding=target/image/forbids-$number.json
    python3 - "$profile" "$forbidding" "$number" <<'PYTHON'
import json, sys
profile = json.load(open(sys.argv[1]))
profile["syscalls"] = [rule for rule in profile["syscalls"] if "io_uring_setup" not in rule["names"]]
profile["defaultErrnoRet"] = int(sys.argv[3])
json.dump(profile, open(sys.argv[2], "w"))
PYTHON
    said=$(podman run --rm "${tight[@]}" --security-opt "seccomp=$forbidding" --tmpfs /data "$image" 2>&1 || true)
    promise "error $number by a filter is called one by a filter" grep -q 'by a seccomp filter' <<<"$said"
done

# Where this machine has the default of a runtime, the profile must not allow more than it and the three calls.
default=/usr/share/containers/seccomp.json
if [ -f $default ]; then
    more=$(python3 - "$profile" $default <<'PYTHON'
import json, sys
def allowed(path):
    rules = json.load(open(path))["syscalls"]
    return {name for rule in rules if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
# Newer than the default of an older runtime, and harmless.
newer = {"cachestat", "fchmodat2", "futex_waitv", "map_shadow_stack"}
print(*sorted(allowed(sys.argv[1]) - allowed(sys.argv[2]) - newer))
PYTHON
    )
    promise "beyond the default it allows io_uring alone (${more})" test "$more" = "io_uring_enter io_uring_register io_uring_setup"
fi
exit $failed
