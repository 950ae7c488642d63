#!/usr/bin/env bash
# Builds what is given away: a static program, stripped, with manual pages, completions, licences and a bill of materials.
# The same sources, compiler and C library give the same bytes in any directory (scripts/dist-twice.sh).
#
#   scripts/dist.sh [x86_64|aarch64 ...]     # default: this machine's; aarch64 on x86-64 needs gcc-aarch64-linux-gnu
#   DIST_PROFILE=quick scripts/dist.sh       # to try the packaging: builds in a third of the time, runs slower
#   DIST_DIR=...                             # where it goes; default target/dist
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
native=$(uname -m)
profile=${DIST_PROFILE:-dist}
mkdir -p "${DIST_DIR:-target/dist}"
out=$(cd "${DIST_DIR:-target/dist}" && pwd)
stages=$out/stage
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null) || {
        echo "dist: SOURCE_DATE_EPOCH must be set where there is no git repository" >&2
        exit 1
    }
fi
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC

# Everything that the compilers write down about where they ran gets a name of its own.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
sysroot=$(rustc --print sysroot)
remapped=("$PWD=/corq" "$cargo_home=/cargo" "$sysroot=/rust")

# Flags are separated by a byte that no path has.
rust_flags() {
    local separator=$'\x1f' flags="-Ctarget-feature=+crt-static" place
    for place in "${remapped[@]}"; do flags+="${separator}--remap-path-prefix=$place"; done
    # Whether there is an id of the build is up to how the C compiler was configured.
    printf '%s' "${flags}${separator}-Clink-arg=-Wl,--build-id=sha1"
}

c_flags() {
    local place
    printf -- '-g0'
    for place in "${remapped[@]}"; do printf -- ' -ffile-prefix-map=%s' "$place"; done
}

# $1: architecture. Leaves the program in the stage.
build() {
    local arch=$1 target=$1-unknown-linux-gnu name
    if ! [ -d "$sysroot/lib/rustlib/$target" ]; then
        rustup target add "$target" >&2 || {
            echo "dist: the standard library for $target is needed: rustup target add $target" >&2
            exit 1
        }
    fi
    name=${target//-/_}
    export "CFLAGS_$name=$(c_flags)"
    if [ "$arch" != "$native" ]; then
        if ! command -v "$arch-linux-gnu-gcc" >/dev/null; then
            echo "dist: a C compiler for $arch is needed: apt-get install gcc-${arch/_/-}-linux-gnu" >&2
            exit 1
        fi
        export "CC_$name=$arch-linux-gnu-gcc" "AR_$name=$arch-linux-gnu-ar"
        export "CARGO_TARGET_${name^^}_LINKER=$arch-linux-gnu-gcc"
    fi
    # Not RUSTFLAGS: paths may have spaces.
    CARGO_ENCODED_RUSTFLAGS=$(rust_flags) cargo build --locked --profile "$profile" -p corq --bin corq --target "$target" >&2
    install -D -m 755 "${CARGO_TARGET_DIR:-target}/$target/$profile/corq" "$stages/$arch/bin/corq"
    if [ "$profile" != dist ]; then
        "$([ "$arch" = "$native" ] || printf '%s-linux-gnu-' "$arch")strip" "$stages/$arch/bin/corq"
    fi
    if readelf --program-headers --wide "$stages/$arch/bin/corq" | grep -q INTERP; then
        echo "dist: the program for $arch is not static" >&2
        exit 1
    fi
}

# $1: architecture. Everything around the program, the same for all of them but for the licences.
surround() {
    local arch=$1 stage=$stages/$1 tool=$stages/$native/bin/corq
    rm -rf "$stage/man" "$stage/completions"
    mkdir -p "$stage/completions"
    "$tool" man "$stage/man"
    "$tool" completions bash >"$stage/completions/corq.bash"
    "$tool" completions zsh >"$stage/completions/_corq"
    "$tool" completions fish >"$stage/completions/corq.fish"
    install -m 644 LICENSE CHANGELOG.md docs/install.md "$stage/"
    python3 scripts/lib/third_party.py licences "$arch" >"$stage/THIRD-PARTY-LICENSES.txt"
    rm -rf "$stage/packaging"
    mkdir "$stage/packaging"
    cp -r packaging/{systemd,container,helm,kubernetes} packaging/corq.toml "$stage/packaging/"
    # The board and the rules that compose.yaml mounts.
    local beside
    for beside in packaging/{prometheus,grafana}; do [ ! -d "$beside" ] || cp -r "$beside" "$stage/packaging/"; done
    python3 scripts/lib/third_party.py sbom "$arch" "$stage/bin/corq" >"$out/corq-$version-$arch-linux.cdx.json"
}

# $1: architecture. One order, one owner, one time.
archive() {
    local arch=$1 name=corq-$version-$1-linux
    chmod -R u=rwX,go=rX "$stages/$arch"
    tar --create --directory "$stages/$arch" --transform "s,^\.,$name," --sort=name --format=ustar \
        --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner . |
        gzip -9 --no-name >"$out/$name.tar.gz"
}

architectures=("$@")
[ $# -gt 0 ] || architectures=("$native")
rm -rf "$stages"
for arch in "${architectures[@]}"; do
    case $arch in
        x86_64 | aarch64) ;;
        *) echo "dist: $arch is neither x86_64 nor aarch64" >&2 && exit 1 ;;
    esac
done
# Manual pages and completions are printed by the program, so one that runs here comes first.
build "$native"
for arch in "${architectures[@]}"; do
    [ "$arch" = "$native" ] || build "$arch"
    surround "$arch"
    archive "$arch"
done
scripts/lib/sums.sh "$out"
