#!/bin/sh
# Downloads the pinned packages of examples/mutation into .cache/mutation, for its test. It changes
# nothing when all is there.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
"$root/.cache/sdk/python/bin/python" "$root/examples/mutation/packages.py" "$root/.cache/mutation"
