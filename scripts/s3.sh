#!/bin/sh
# Builds versitygw into .cache/s3, and installs rclone from Debian, for the tests of package s3sign: a server of S3
# that checks signatures, and a client. It changes nothing when all is there.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
to=$root/.cache/s3
version=v1.0.14
LIST=$root/packaging/debian/s3.txt "$root/scripts/deps.sh"
mkdir -p "$to"
if [ "$(cat "$to/version" 2>/dev/null)" != $version ]; then
	(cd "$to" && GOFLAGS='' GOBIN=$to CGO_ENABLED=0 ${GO:-go} install "github.com/versity/versitygw/cmd/versitygw@$version")
	echo $version >"$to/version"
fi
