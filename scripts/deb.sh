#!/bin/sh
# Builds dist/forkd_VERSION_amd64.deb from the working tree. The same tree, version and Go give the
# same bytes.
#
#   deb.sh             the version is 0.1.0~dev with the commit
#   VERSION=0.1.0 deb.sh  the package of 0.1.0-rc.1 has the version 0.1.0~rc.1, which is before 0.1.0
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
LIST=$root/packaging/deb/packages.txt scripts/deps.sh

commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
version=${VERSION:-0.1.0~dev+$commit}
debian=$(echo "$version" | tr - '~')
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export CGO_ENABLED=0 DEB_BUILD_OPTIONS=nostrip TZ=UTC LC_ALL=C
umask 022

work=$root/.cache/deb
tree=$work/forkd
rm -rf "$work"
mkdir -p "$tree/build/bin" "$tree/build/completions" "$tree/debian/source" dist
cp packaging/deb/* "$tree/debian/"
mv "$tree/debian/vms" "$tree/build/"
rm "$tree/debian/packages.txt"

for program in forkd forkd-agent forkd-idmap forkd-net forkd-spawn forkd-vmm; do
	go build -trimpath -ldflags "-s -w -X main.version=$version" -o "$tree/build/bin/" "./cmd/$program"
done
"$tree/build/bin/forkd" generate "$tree/build/generated"
mv "$tree/build/generated/man" "$tree/build/generated/config.yaml" "$tree/build/"
mv "$tree/build/generated/forkd.bash" "$tree/build/completions/forkd"
mv "$tree/build/generated/_forkd" "$tree/build/generated/forkd.fish" "$tree/build/completions/"
cp -R recipes "$tree/build/"
scripts/notice.sh "$tree"/build/bin/* >"$tree/build/NOTICE"
echo build/NOTICE >"$tree/debian/forkd.docs"
echo "3.0 (native)" >"$tree/debian/source/format"
cat >"$tree/debian/changelog" <<EOF
forkd ($debian) unstable; urgency=medium

  * See https://github.com/forkd/forkd for the changes.

 -- forkd maintainers <maintainers@forkd.invalid>  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
EOF

(cd "$tree" && dpkg-buildpackage --build=binary --no-sign --no-check-builddeps >"$work/build.log" 2>&1) || {
	cat "$work/build.log" >&2
	exit 1
}
rm -f dist/forkd_*_amd64.deb
mv "$work"/forkd_*_amd64.deb dist/
echo "deb: dist/$(cd dist && ls forkd_*_amd64.deb)"
