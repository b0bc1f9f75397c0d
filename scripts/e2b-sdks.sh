#!/bin/sh
# Installs the pinned versions of E2B's own packages, from PyPI and npm, into .cache/e2b: the
# tests of test/e2b run them. It is quick and changes nothing when all is there.
#
#   e2b-sdks.sh newest    install those of today instead, for FORKD_E2B_VERSIONS=newest
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
dir=$root/.cache/e2b
mkdir -p "$dir"

if [ "${1-}" = newest ]; then
	at=$dir/python-newest
	[ -e "$at/bin/pip" ] || python3 -m venv "$at"
	"$at/bin/pip" install --quiet --disable-pip-version-check --upgrade e2b e2b-code-interpreter
	command -v npm >/dev/null || exit 0
	at=$dir/node-newest
	mkdir -p "$at"
	echo '{"private":true,"type":"module"}' >"$at/package.json"
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$at" e2b@latest @e2b/code-interpreter@latest
	exit 0
fi

# The pins are those of test/e2b/versions_test.go.
for pin in 2.45.1 2.55.0 2.63.0; do
	at=$dir/python-$pin
	[ -e "$at/ready" ] && continue
	rm -rf "$at"
	python3 -m venv "$at"
	"$at/bin/pip" install --quiet --disable-pip-version-check "e2b==$pin"
	touch "$at/ready"
done
# The methods of the newest code interpreter's packages are listed beside those of e2b.
at=$dir/python-2.63.0
[ -e "$at/interpreter" ] || "$at/bin/pip" install --quiet --disable-pip-version-check e2b==2.63.0 e2b-code-interpreter==2.11.5
touch "$at/interpreter"
# Debian's npm is four hundred packages: those for Node are tested where it is there.
command -v npm >/dev/null || exit 0
for pin in 2.45.0 2.51.0; do
	at=$dir/node-$pin
	[ -e "$at/ready" ] && continue
	rm -rf "$at"
	mkdir -p "$at"
	echo '{"private":true,"type":"module"}' >"$at/package.json"
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$at" "e2b@$pin"
	touch "$at/ready"
done
at=$dir/node-2.51.0
[ -e "$at/interpreter" ] || npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$at" e2b@2.51.0 @e2b/code-interpreter@2.8.0
touch "$at/interpreter"
