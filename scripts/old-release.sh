#!/bin/sh
# Builds the programs and the Python image of release 0.1.0 from git's history, and links them beside
# the fixtures as 0.1.0-*. The tests of test/upgrade start them. It changes nothing when all is there.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
commit=$(cat "$root/test/upgrade/release-0.1.0")
fixtures="$root/.cache/fixtures"
files="forkd forkd-vmm forkd-spawn forkd-net py.image.json py.vmlinux py.initrd py.root.erofs py.upper.disk"
kept="$root/.cache/release-0.1.0"

if [ "$(cat "$kept/.stamp" 2>/dev/null)" != "$commit" ]; then
	if ! git -C "$root" cat-file -e "$commit^{commit}" 2>/dev/null; then
		echo "old-release.sh: this checkout lacks commit $commit (0.1.0): git fetch --unshallow" >&2
		exit 1
	fi
	tree=$(mktemp -d)
	trap 'rm -rf "$tree"' EXIT
	git -C "$root" archive "$commit" | tar -x -C "$tree"
	echo "building the programs of 0.1.0" >&2
	(cd "$tree" && mkdir bin &&
		CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=0.1.0' -o bin/ ./cmd/... &&
		go run ./test/fixtures -out fixtures)
	rm -rf "$kept"
	mkdir -p "$kept"
	for file in $files; do
		ln "$tree/fixtures/$file" "$kept/$file" 2>/dev/null || cp "$tree/fixtures/$file" "$kept/$file"
	done
	echo "$commit" >"$kept/.stamp"
fi
for file in $files; do
	ln -f "$kept/$file" "$fixtures/0.1.0-$file"
done
