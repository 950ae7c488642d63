# Ports that nobody listens on. Sourced.
# shellcheck shell=bash
free_port() {
    local port
    for _ in $(seq 100); do
        port=$((20000 + RANDOM % 12000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
    done
    echo "no free port found" >&2
    return 1
}
