#!/bin/sh
# Prints the licences of the Go modules in programs, and of Go itself.
#
#   notice.sh PROGRAM...
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

echo "The programs of forkd are under the Apache License, Version 2.0."
echo "They contain the following software."

# $1: name, $2: directory with the licence
licence() {
	printf '\n%s\n%s\n' "$(printf '%.0s=' $(seq 80))" "$1"
	found=
	for file in "$2"/*LICEN[CS]E* "$2"/*[Ll]icense* "$2"/COPYING* "$2"/NOTICE*; do
		[ -f "$file" ] || continue
		found=yes
		printf '\n'
		cat "$file"
	done
	[ -n "$found" ] || { echo "notice: $1 has no licence in $2" >&2; exit 1; }
}

licence "Go, $(go env GOVERSION)" "$(go env GOROOT)"
for program; do go version -m "$program"; done | awk '$1 == "dep" { print $2 }' | sort -u | while read -r module; do
	version=$(go list -m -f '{{.Version}}' "$module")
	dir=$(go list -m -f '{{.Dir}}' "$module")
	licence "$module $version" "$dir"
done
