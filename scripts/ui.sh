#!/bin/sh
# Installs the pinned packages that build the web page. It changes nothing when all is there. Without
# npm it does nothing.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root/ui"
command -v npm >/dev/null || exit 0
if ! cmp -s package-lock.json node_modules/.forkd-lock; then
	npm ci --silent --no-audit --no-fund
	cp package-lock.json node_modules/.forkd-lock
fi
