# Puts packages of PyPI into a tree of mmdebstrap, for the tree's Python. Wheels only: nothing of them
# runs here, and so the host's pip can do it for another Python than its own.
# Runs as root, or as root of the user namespace that mmdebstrap --unshare-helper makes.
#   $1 tree  $2 its Python's version, as 3.11  $3 its C library's, as 36 for 2.36  $4... packages
set -eu
tree=$1 python=$2 libc=$3
shift 3
stage=$tree/tmp/forkd-pip
trap 'rm -rf "$stage"' EXIT

# All tags of the C libraries that the tree's is at least as new as.
platforms=
while [ "$libc" -ge 5 ]; do
	platforms="$platforms --platform manylinux_2_${libc}_x86_64"
	libc=$((libc - 1))
done
platforms="$platforms --platform manylinux2014_x86_64 --platform manylinux2010_x86_64 --platform manylinux1_x86_64"

# shellcheck disable=SC2086 # words
python3 -m pip install --target "$stage" --python-version "$python" --implementation cp $platforms \
	--only-binary :all: --no-compile --no-cache-dir --no-input --progress-bar off \
	--disable-pip-version-check -- "$@"

# What pip has put beside the modules goes where the system looks for it, and programs find the tree's Python.
modules=/usr/local/lib/python$python/dist-packages
chroot "$tree" sh -eu -c '
stage=$1 modules=$2
mkdir -p "$modules"
for part in bin share etc; do
	[ -d "$stage/$part" ] || continue
	mkdir -p "/usr/local/$part"
	cp -a "$stage/$part/." "/usr/local/$part/"
	if [ "$part" = bin ]; then
		for f in "$stage/bin/"*; do
			sed -i "1s|^#!.*python[0-9.]*\$|#!/usr/bin/python3|" "/usr/local/bin/${f##*/}"
		done
	fi
	rm -rf "${stage:?}/$part"
done
cp -a "$stage/." "$modules/"
# By hash and unchecked: the files get another time later, which nothing has to match then.
PYTHONHASHSEED=0 python3 -m compileall -q --invalidation-mode unchecked-hash "$modules" || true # a template is no module
' sh /tmp/forkd-pip "$modules"
