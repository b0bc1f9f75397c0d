#!/bin/sh
# Installs agent-sandbox's Python client, unmodified, for test/kube.
set -eu
cd "$(dirname "$0")/.."
dir=.cache/kube/sdk
want=k8s-agent-sandbox==1.0.8
if [ "$(cat "$dir/installed" 2>/dev/null)" = "$want" ]; then
	exit 0
fi
rm -rf "$dir"
python3 -m venv "$dir"
"$dir/bin/pip" install --quiet --disable-pip-version-check "$want"
echo "$want" >"$dir/installed"
