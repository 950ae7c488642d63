#!/usr/bin/env bash
# Builds the container image localhost/corq of the program that scripts/dist.sh has built, with docker, podman or buildah.
# It needs no network: the image has nothing but that program and the certificates of this machine.
#
#   scripts/image.sh [x86_64|aarch64]
#   IMAGE_TOOL=podman scripts/image.sh
set -euo pipefail
cd "$(dirname "$0")/.."
arch=${1:-$(uname -m)}
case $arch in
    x86_64) platform=linux/amd64 ;;
    aarch64) platform=linux/arm64 ;;
    *) echo "image: $arch is neither x86_64 nor aarch64" >&2 && exit 1 ;;
esac
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
[ -x "${DIST_DIR:-target/dist}/stage/$arch/bin/corq" ] || scripts/dist.sh "$arch" >&2

tool=${IMAGE_TOOL:-}
for candidate in docker podman buildah; do
    # A docker without its daemon cannot build.
    [ -n "$tool" ] || ! "$candidate" info >/dev/null 2>&1 || tool=$candidate
done
[ -n "$tool" ] || { echo "image: docker, podman or buildah is needed" >&2; exit 1; }

root=$PWD/target/image/root
context=$PWD/target/image/context
mkdir -p "$context"
scripts/lib/image_root.sh "$arch" "$root"
words=(build --platform "$platform" --build-context "program=$root" --file packaging/container/Dockerfile
    --tag "localhost/corq:$version" --tag localhost/corq:latest)
# The health check is not part of the OCI format. One time for all files makes equal images of equal programs.
case $tool in
    docker) ;;
    *) words+=(--format docker --timestamp "$SOURCE_DATE_EPOCH") ;;
esac
"$tool" "${words[@]}" "$context" >&2
echo "localhost/corq:$version"
