#!/usr/bin/env bash
# Lays out the root of the image: the program, certificates, and an empty directory that the server's user owns.
#
#   scripts/lib/image_root.sh ARCH ROOT
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=$1 root=$2
stage=${DIST_DIR:-target/dist}/stage/$arch
certificates=/etc/ssl/certs/ca-certificates.crt
[ -f $certificates ] || { echo "image: $certificates is needed: apt-get install ca-certificates" >&2; exit 1; }
umask 022
rm -rf "$root"
install -D -m 755 "$stage/bin/corq" "$root/corq"
install -D -m 644 $certificates "$root$certificates"
install -D -m 644 LICENSE "$root/licences/LICENSE"
install -m 644 "$stage/THIRD-PARTY-LICENSES.txt" "$root/licences/"
# Names are looked up in /etc/hosts and by DNS; without this line the C library would look for plug-ins, which are not there.
mkdir -p "$root/etc"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
echo 'corq:x:10001:10001::/:/corq' >"$root/etc/passwd"
echo 'corq:x:10001:' >"$root/etc/group"
install -d -m 750 "$root/data"
chown 10001:10001 "$root/data"
find "$root" -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH:-0}" {} +
