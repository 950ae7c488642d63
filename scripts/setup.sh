#!/bin/sh
# Checks for what a build needs besides Rust, and installs it if possible.
set -eu

missing() { ! command -v "$1" >/dev/null 2>&1; }

if missing cargo; then
    echo "Rust is needed: https://rustup.rs" >&2
    exit 1
fi

packages=
missing cc && packages="$packages gcc libc6-dev"
missing make && packages="$packages make"
# The Python client that tests the server; without it `make test` could not run whole.
missing python3 && packages="$packages python3"
if ! missing python3 && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    packages="$packages python3-venv"
fi
[ -z "$packages" ] && exit 0

if missing apt-get; then
    echo "please install:$packages" >&2
    exit 1
fi
as_root=
[ "$(id -u)" -eq 0 ] || as_root=sudo
$as_root apt-get update -q
# shellcheck disable=SC2086
$as_root apt-get install -q -y $packages
