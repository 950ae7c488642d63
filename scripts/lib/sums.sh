#!/usr/bin/env bash
# Writes SHA256SUMS of the files of a directory, in the order of their names.
set -euo pipefail
cd "$1"
find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum >SHA256SUMS
cat SHA256SUMS
