#!/bin/sh
# Fetches Debian's promtool into .cache/promtool, for tests of the alert rules. The package is
# unpacked, not installed: an installed one would start a Prometheus server.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
to=$root/.cache/promtool
[ -x "$to/usr/bin/promtool" ] && exit 0
rm -rf "$to"
mkdir -p "$to"
cd "$to"
apt-get -qq download prometheus || {
	apt-get -qq update
	apt-get -qq download prometheus
}
dpkg -x prometheus_*.deb .
rm prometheus_*.deb
