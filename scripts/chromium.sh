#!/bin/sh
# Installs Debian's Chromium for the tests of the web page, if it is missing.
set -eu

command -v chromium >/dev/null && exit 0
export DEBIAN_FRONTEND=noninteractive
apt-get -q -y -o DPkg::Lock::Timeout=600 update >&2
apt-get -q -y -o DPkg::Lock::Timeout=600 install --no-install-recommends chromium fonts-dejavu-core >&2
