#!/bin/sh
# Installs schemathesis from PyPI into .cache/schemathesis, and has it try the API against its
# document, with three keys, over an engine without VMs (test/openapi).
#
#   schemathesis.sh [EXAMPLES]    of each operation beside its edge cases; default 30: some minutes
#   schemathesis.sh short         5 of each, and no edge cases: a minute, as `make soak` begins
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
examples=${1:-30}
if [ "$examples" = short ]; then
	examples=5
	export FORKD_SCHEMATHESIS_ARGS="--phases fuzzing,stateful ${FORKD_SCHEMATHESIS_ARGS-}"
fi
FORKD_SCHEMATHESIS=$at/bin/schemathesis FORKD_SCHEMATHESIS_EXAMPLES=$examples \
	exec go test -tags schemathesis -v -count=1 -timeout 70m -run '^TestSchemathesis$' ./test/openapi
