#!/usr/bin/env bash
# Makes what is given to users, in target/dist or the directory named as the first argument: an archive with the stripped binary, a
# Debian package, a context for `docker build`, and their SHA-256 sums. OUTLAST_BINARY names a binary that is built already.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
machine=$(uname -m)
architecture=$(dpkg --print-architecture)
out=$(mkdir -p "${1:-target/dist}" && cd "${1:-target/dist}" && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

# The same sources give the same bytes: no times but that of the last commit, no users, one order.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
pack() { # archive, directory above, name
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$2" -c "$3" | gzip -n > "$1"
}

binary=${OUTLAST_BINARY:-}
if [ -z "$binary" ]; then
  cargo build --release --locked -p outlast
  binary=target/release/outlast
fi
strip -o "$stage/outlast" "$binary"
chmod 755 "$stage/outlast"
rm -f "$out"/outlast-* "$out"/outlast_* "$out"/SHA256SUMS

archive=outlast-$version-$machine-linux
mkdir "$stage/$archive" "$stage/$archive/completions"
install -m 755 "$stage/outlast" "$stage/$archive/outlast"
install -m 644 LICENSE README.md CHANGELOG.md config.default.yaml packaging/outlast.service "$stage/$archive"
for shell in bash zsh fish; do
  "$stage/outlast" completions "$shell" > "$stage/$archive/completions/outlast.$shell"
done
pack "$out/$archive.tar.gz" "$stage" "$archive"

package=$stage/package
install -D -m 755 "$stage/outlast" "$package/usr/bin/outlast"
install -D -m 644 packaging/outlast.service "$package/lib/systemd/system/outlast.service"
install -D -m 644 config.default.yaml "$package/usr/share/doc/outlast/config.default.yaml"
install -D -m 644 LICENSE "$package/usr/share/doc/outlast/copyright"
install -D -m 644 packaging/outlast.yaml "$package/etc/outlast/outlast.yaml"
install -D -m 644 "$stage/$archive/completions/outlast.bash" "$package/usr/share/bash-completion/completions/outlast"
install -D -m 644 "$stage/$archive/completions/outlast.zsh" "$package/usr/share/zsh/vendor-completions/_outlast"
install -D -m 644 "$stage/$archive/completions/outlast.fish" "$package/usr/share/fish/vendor_completions.d/outlast.fish"
install -d -m 755 "$package/DEBIAN"
size=$(du -ks --exclude=DEBIAN "$package" | cut -f 1)
sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/" packaging/debian/control > "$package/DEBIAN/control"
install -m 644 packaging/debian/conffiles "$package/DEBIAN/conffiles"
install -m 755 packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm "$package/DEBIAN"
chmod -R u+rwX,go+rX,go-w "$package"
dpkg-deb --root-owner-group -Zgzip -z6 --build "$package" "$out/outlast_${version}_$architecture.deb" > /dev/null

context=outlast-$version-docker
mkdir "$stage/$context"
install -m 755 "$stage/outlast" "$stage/$context/outlast"
install -m 644 packaging/Dockerfile LICENSE "$stage/$context"
pack "$out/$context.tar.gz" "$stage" "$context"

(cd "$out" && sha256sum outlast-* outlast_* > SHA256SUMS)
(cd "$out" && ls -l && cat SHA256SUMS)
