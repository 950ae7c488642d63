# For scripts that install Python packages which the tests use: `python_of NAME PACKAGES` makes a virtual environment of that name
# below target/, once, and prints the path of its interpreter. Versions are pinned, so that the tests do not change with releases.

python_of() { # name, packages
    local venv="${CARGO_TARGET_DIR:-target}/$1" packages="$2"
    local python="$venv/bin/python" mark="$venv/.installed"
    # Two test binaries may come here at once.
    mkdir -p "$(dirname "$venv")"
    exec 9>"$venv.lock"
    flock 9
    if [ "$(cat "$mark" 2>/dev/null || true)" != "$packages" ]; then
        rm -rf "$venv"
        python3 -m venv "$venv" >&2
        # shellcheck disable=SC2086
        "$python" -m pip install --quiet --disable-pip-version-check $packages >&2
        echo "$packages" >"$mark"
    fi
    printf '%s\n' "$(cd "$(dirname "$python")" && pwd)/python"
}
