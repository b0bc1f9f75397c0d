#!/bin/sh
# Prints the path of Helm, which is built from its Go module once, into .cache/helm.
set -eu
cd "$(dirname "$0")/.."
version=v4.3.2
helm=$PWD/.cache/helm/$version/helm
if [ ! -x "$helm" ]; then
	echo "building Helm $version, about 3 minutes of CPU" >&2
	GOBIN=$(dirname "$helm") GOFLAGS=-mod=mod CGO_ENABLED=0 "${GO:-go}" install "helm.sh/helm/v4/cmd/helm@$version"
fi
echo "$helm"
