#!/bin/sh
# Installs the Python SDK of sdk/python into .cache/sdk/python, with what its tests need. It changes
# nothing when all is there.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
at=$root/.cache/sdk/python
pins=$root/sdk/python/tests/requirements.txt
if ! cmp -s "$pins" "$at/ready"; then
	rm -rf "$at"
	mkdir -p "$root/.cache/sdk"
	python3 -m venv "$at"
	"$at/bin/pip" install --quiet --disable-pip-version-check -r "$pins"
	# The package itself is used in place.
	echo "$root/sdk/python/src" >"$(echo "$at"/lib/python3*/site-packages)/forkd-sdk.pth"
	cp "$pins" "$at/ready"
fi
