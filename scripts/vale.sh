#!/bin/sh
# Checks the prose of docs with Vale and the rules of .vale. It builds the pinned Vale into .cache/lint,
# which needs a C compiler.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
version=v3.21.0
at=$root/.cache/lint
if [ "$(cat "$at/vale-version" 2>/dev/null)" != "$version" ]; then
	mkdir -p "$at"
	(cd "$at" && CGO_ENABLED=1 GOBIN="$at" go install "github.com/vale-cli/vale/v3/cmd/vale@$version")
	echo "$version" >"$at/vale-version"
fi
cd "$root"
exec "$at/vale" --no-global --output line README.md CONTRIBUTING.md SECURITY.md docs examples \
	integrations/*/README.md sdk/*/README.md
