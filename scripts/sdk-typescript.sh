#!/bin/sh
# Builds the TypeScript SDK in place, with its pinned compiler from npm. It changes nothing when all is
# there.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
nodes=$("$root/scripts/node.sh")
export PATH="$nodes:$PATH"
cd "$root/sdk/typescript"
if ! cmp -s package-lock.json node_modules/.forkd-lock; then
	npm ci --silent --no-audit --no-fund
	cp package-lock.json node_modules/.forkd-lock
fi
sources=$(cat src/*.ts src/generated/*.ts tsconfig.json | sha256sum)
if [ "$sources" != "$(cat dist/.forkd-sources 2>/dev/null)" ]; then
	npm run -s build
	echo "$sources" >dist/.forkd-sources
fi
