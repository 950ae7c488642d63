#!/usr/bin/env bash
# Builds what scripts/dist.sh builds, and of it a package for Debian and Ubuntu (.deb) and one for Fedora, RHEL and SUSE
# (.rpm). Both have the same files, and the static program, so they need nothing but systemd. Needs dpkg-deb and rpmbuild.
#
#   scripts/packages.sh [x86_64|aarch64 ...]
#   PACKAGES_ONLY=1 scripts/packages.sh ...    # of the stages that lie in target/dist already
#   PACKAGE_VERSION=0.1.0+next ...             # another version than that of Cargo.toml, for trying an upgrade
#   PACKAGE_QUICK=1 ...                        # larger packages in a tenth of the time, for trying them
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in dpkg-deb rpmbuild; do
    command -v $tool >/dev/null || { echo "packages: $tool is needed: apt-get install dpkg rpm" >&2; exit 1; }
done
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
architectures=("$@")
[ $# -gt 0 ] || architectures=("$(uname -m)")
[ -n "${PACKAGES_ONLY:-}" ] || scripts/dist.sh "${architectures[@]}" >&2

mkdir -p "${DIST_DIR:-target/dist}"
out=$(cd "${DIST_DIR:-target/dist}" && pwd)
version=${PACKAGE_VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)}
# Of xz in the .deb, of zstd in the .rpm.
deb_level=6 rpm_level=19
[ -z "${PACKAGE_QUICK:-}" ] || deb_level=0 rpm_level=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
umask 022

# $1: stage, $2: root. The files that both packages have.
lay_out() {
    local stage=$1 root=$2 page
    install -D -m 755 "$stage/bin/corq" "$root/usr/bin/corq"
    install -D -m 644 -t "$root/usr/lib/systemd/system" packaging/systemd/*.service
    if compgen -G 'packaging/systemd/*.socket' >/dev/null; then
        install -D -m 644 -t "$root/usr/lib/systemd/system" packaging/systemd/*.socket
    fi
    install -D -m 644 packaging/sysusers.d/corq.conf "$root/usr/lib/sysusers.d/corq.conf"
    install -D -m 644 packaging/sysctl.d/60-corq.conf "$root/usr/lib/sysctl.d/60-corq.conf"
    install -D -m 644 packaging/limits.d/60-corq.conf "$root/etc/security/limits.d/60-corq.conf"
    install -D -m 644 packaging/corq.toml "$root/etc/corq/corq.toml"
    install -D -m 644 "$stage/completions/corq.bash" "$root/usr/share/bash-completion/completions/corq"
    install -D -m 644 "$stage/completions/_corq" "$root/usr/share/zsh/vendor-completions/_corq"
    install -D -m 644 "$stage/completions/corq.fish" "$root/usr/share/fish/vendor_completions.d/corq.fish"
    mkdir -p "$root/usr/share/man/man1"
    for page in "$stage"/man/*.1; do
        gzip -9 --no-name <"$page" >"$root/usr/share/man/man1/$(basename "$page").gz"
    done
    chmod 644 "$root"/usr/share/man/man1/*
    install -D -m 644 packaging/container/seccomp.json "$root/usr/share/corq/seccomp.json"
    # What it is watched with; the alerts name entries of the runbook.
    install -D -m 644 -t "$root/usr/share/corq/prometheus" packaging/prometheus/{alerts,prometheus}.yml docs/runbook.md
    install -D -m 644 packaging/grafana/corq.json "$root/usr/share/corq/grafana/corq.json"
}

# $1: architecture, $2: root.
deb() {
    local arch=$1 root=$2 doc=$2/usr/share/doc/corq name
    case $arch in x86_64) name=amd64 ;; aarch64) name=arm64 ;; esac
    mkdir -p "$doc" "$root/usr/share/lintian/overrides" "$root/DEBIAN"
    install -m 644 packaging/deb/copyright "$doc/copyright"
    gzip -9 --no-name <"$out/stage/$arch/THIRD-PARTY-LICENSES.txt" >"$doc/THIRD-PARTY-LICENSES.txt.gz"
    gzip -9 --no-name <CHANGELOG.md >"$doc/CHANGELOG.md.gz"
    # The form that Debian's tools read; what has changed is in the file beside it.
    printf 'corq (%s) stable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n -- %s  %s\n' "$version" \
        "$(sed -n 's/^Maintainer: //p' packaging/deb/control)" "$(date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")" |
        gzip -9 --no-name >"$doc/changelog.gz"
    install -m 644 packaging/deb/lintian-overrides "$root/usr/share/lintian/overrides/corq"
    install -m 755 packaging/deb/{postinst,prerm,postrm} "$root/DEBIAN/"
    (cd "$root" && find etc -type f | sort | sed 's,^,/,') >"$root/DEBIAN/conffiles"
    (cd "$root" && find etc usr -type f | sort | xargs -d '\n' md5sum) >"$root/DEBIAN/md5sums"
    sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$name/" \
        -e "s/@KIB@/$(du -k --apparent-size -s "$root" | cut -f 1)/" packaging/deb/control >"$root/DEBIAN/control"
    chmod 644 "$root"/DEBIAN/{conffiles,md5sums,control}
    find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    # Several threads compress to other bytes than one.
    dpkg-deb --root-owner-group -Zxz -z$deb_level --threads-max=1 --build "$root" "$out/corq_${version}_$name.deb" >&2
}

# $1: architecture, $2: root.
rpm() {
    local arch=$1 root=$2 doc=$2/usr/share/doc/corq licences=$2/usr/share/licenses/corq
    mkdir -p "$doc" "$licences"
    install -m 644 CHANGELOG.md "$doc/"
    install -m 644 LICENSE "$out/stage/$arch/THIRD-PARTY-LICENSES.txt" "$licences/"
    mkdir -p "$root/usr/share/zsh/site-functions"
    mv "$root/usr/share/zsh/vendor-completions/_corq" "$root/usr/share/zsh/site-functions/"
    rmdir "$root/usr/share/zsh/vendor-completions"
    # A name of its own for the directory would be in the package.
    rpmbuild --quiet -bb --target "$arch-unknown-linux" --buildroot "$scratch/buildroot-$arch" \
        --define "_topdir $scratch/rpm" --define "_rpmdir $out" --define '_rpmfilename %{name}-%{version}-%{release}.%{arch}.rpm' \
        --define "_binary_payload w$rpm_level.zstdio" --define "corq_root $root" --define "corq_version ${version//-/\~}" \
        --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' \
        --define '_buildhost corq' --define "_dbpath $scratch/rpmdb" packaging/rpm/corq.spec >&2
}

for arch in "${architectures[@]}"; do
    [ -x "$out/stage/$arch/bin/corq" ] || { echo "packages: run scripts/dist.sh $arch first" >&2; exit 1; }
    lay_out "$out/stage/$arch" "$scratch/deb-$arch"
    lay_out "$out/stage/$arch" "$scratch/rpm-$arch"
    deb "$arch" "$scratch/deb-$arch"
    rpm "$arch" "$scratch/rpm-$arch"
done
scripts/lib/sums.sh "$out"
