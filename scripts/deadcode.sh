#!/bin/sh
# Lists functions that no program and no test reaches, except those of generated code and those called from assembly.
set -eu

GO=${GO:-go}
found=$(CGO_ENABLED=0 "$GO" run golang.org/x/tools/cmd/deadcode@v0.52.0 -test ./... |
	grep -v -e '\.pb\.go:' -e 'internal/confine/jail/stage/code_unsafe\.go:.*: run\(End\)\?$' || true)
if [ -n "$found" ]; then
	echo "$found"
	exit 1
fi
