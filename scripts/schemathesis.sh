#!/bin/sh
# Installs schemathesis from PyPI into .cache/schemathesis, and has it try the API against its
# document, with three keys, over an engine without VMs (test/openapi). `make soak` does so.
#
#   schemathesis.sh [EXAMPLES]    of each operation; default 30
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
pin=4.32.5
at=$root/.cache/schemathesis-$pin
if [ ! -e "$at/ready" ]; then
	rm -rf "$at"
	python3 -m venv "$at"
	"$at/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$pin"
	touch "$at/ready"
fi
cd "$root"
FORKD_SCHEMATHESIS=$at/bin/schemathesis FORKD_SCHEMATHESIS_EXAMPLES=${1:-30} \
	exec go test -tags schemathesis -count=1 -timeout 70m -run '^TestSchemathesis$' ./test/openapi
