#!/bin/sh
# Writes the reference pages of the SDKs from their sources: dist/docs/python with pdoc, and
# dist/docs/typescript with TypeDoc. Both tools are pinned, and installed below .cache/sdk.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
pdoc=pdoc==16.0.0
typedoc=typedoc@0.28.15
at=$root/.cache/sdk/docs
out=$root/dist/docs

if [ "$(cat "$at/ready" 2>/dev/null)" != "$pdoc $typedoc" ]; then
	rm -rf "$at"
	mkdir -p "$at"
	python3 -m venv "$at/python"
	"$at/python/bin/pip" install --quiet --disable-pip-version-check "$pdoc" "httpx>=0.27,<1"
	echo "$pdoc $typedoc" >"$at/ready"
fi
rm -rf "$out"
mkdir -p "$out"
PYTHONPATH=$root/sdk/python/src "$at/python/bin/pdoc" forkd '!forkd.models' forkd.models -o "$out/python"
nodes=$("$root/scripts/node.sh")
export PATH="$nodes:$PATH"
cd "$root/sdk/typescript"
npm exec --yes --package="$typedoc" --package=typescript@5.9.3 -- typedoc --tsconfig tsconfig.json \
	--entryPoints src/index.ts --out "$out/typescript" \
	--skipErrorChecking --disableSources --logLevel Error
echo "$out/python/index.html"
echo "$out/typescript/index.html"
