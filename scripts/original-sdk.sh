#!/bin/sh
# Installs the original forkd's Python client, unmodified from PyPI, into .cache/original, for test/original.
set -eu
cd "$(dirname "$0")/.."
version=0.5.3
dir=.cache/original
if [ "$(cat "$dir/version" 2>/dev/null || true)" = "$version" ]; then
	exit 0
fi
rm -rf "$dir"
python3 -m venv "$dir"
"$dir/bin/pip" install --quiet --disable-pip-version-check --no-deps "forkd==$version"
echo "$version" > "$dir/version"
