#!/bin/sh
# Prints a directory with the programs node and npm: the host's, else those of `make fixtures`, which it
# unpacks into .cache/node. Debian's npm is four hundred packages, so make deps does not install it.
#
#   PATH=$(scripts/node.sh):$PATH
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
if command -v node >/dev/null && command -v npm >/dev/null; then
	dirname "$(command -v npm)"
	exit
fi
at=$root/.cache/node
fixtures=$root/.cache/fixtures
if ! cmp -s "$fixtures/npm.tgz" "$at/npm.tgz" || ! cmp -s "$fixtures/node" "$at/bin/node"; then
	[ -e "$fixtures/node" ] && [ -e "$fixtures/npm.tgz" ] || {
		echo "node.sh: there is neither npm nor $fixtures/node: install Node.js, or run make fixtures" >&2
		exit 1
	}
	rm -rf "$at"
	mkdir -p "$at/bin" "$at/lib/npm"
	install -m 755 "$fixtures/node" "$at/bin/node"
	tar -xzf "$fixtures/npm.tgz" -C "$at/lib/npm" --strip-components=1 --no-same-owner
	ln -s ../lib/npm/bin/npm-cli.js "$at/bin/npm"
	cp "$fixtures/npm.tgz" "$at/npm.tgz" # last: it marks a complete directory
fi
echo "$at/bin"
