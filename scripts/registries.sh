#!/bin/sh
# Fetches Debian's docker-registry into .cache/registries, for the tests of test/registries. With the
# argument cosign it also builds cosign, which takes minutes. The registry's package is unpacked, not
# installed: an installed one would start a server. skopeo is in packaging/debian/packages.txt.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
to=$root/.cache/registries
cosign=v2.6.5
mkdir -p "$to"
cd "$to"
if [ ! -x usr/bin/docker-registry ]; then
	apt-get -qq download docker-registry || {
		apt-get -qq update
		apt-get -qq download docker-registry
	}
	dpkg -x docker-registry_*.deb .
	rm docker-registry_*.deb
fi
if [ "${1:-}" = cosign ] && [ "$(cat cosign.version 2>/dev/null)" != $cosign ]; then
	GOFLAGS= GOBIN=$to ${GO:-go} install github.com/sigstore/cosign/v2/cmd/cosign@$cosign
	echo $cosign >cosign.version
fi
