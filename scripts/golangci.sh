#!/bin/sh
# Runs golangci-lint with the linters of .golangci.yml. It builds the pinned version into .cache/lint,
# where the results are cached, too.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
version=v2.15.0
at=$root/.cache/lint
go=${GO:-go}
if [ "$(cat "$at/golangci-version" 2>/dev/null)" != "$version" ]; then
	mkdir -p "$at"
	(cd "$at" && GOBIN="$at" "$go" install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version")
	echo "$version" >"$at/golangci-version"
fi
cd "$root"
GOLANGCI_LINT_CACHE=$at/golangci exec "$at/golangci-lint" run --concurrency 2 ./...
