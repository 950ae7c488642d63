#!/usr/bin/env bash
# Builds what is given away twice, from two copies of the last commit in directories of different names and lengths, at
# different times, and fails unless every file is the same byte for byte. Takes two whole builds.
#
#   scripts/dist-twice.sh [x86_64|aarch64 ...]
set -euo pipefail
cd "$(dirname "$0")/.."
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

place=$PWD/target/dist-twice
rm -rf "$place"
first=$place/a
second=$place/a-directory-with-a-longer-name/b
for copy in "$first" "$second"; do
    mkdir -p "$copy"
    git archive HEAD | tar --extract --directory "$copy"
    (cd "$copy" && unset CARGO_TARGET_DIR DIST_DIR && umask "$([ "$copy" = "$first" ] && echo 022 || echo 077)" && scripts/packages.sh "$@" >/dev/null)
    mv "$copy/target/dist" "$copy.dist"
    rm -rf "$copy"
done

status=0
for file in "$first".dist/*; do
    [ -f "$file" ] || continue
    if cmp "$file" "$second.dist/$(basename "$file")"; then
        echo "the same: $(basename "$file")"
    else
        status=1
    fi
done
[ "$(cd "$first.dist" && ls)" = "$(cd "$second.dist" && ls)" ] || { echo "not the same files" >&2; status=1; }
cat "$first.dist/SHA256SUMS"
exit $status
