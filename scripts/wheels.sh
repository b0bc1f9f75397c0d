#!/bin/sh
# Builds Python wheels that carry forkd's programs, into dist/: the client library of sdk/python,
# the static programs as scripts, and the recipes of images. `pip install dist/forkd-*.whl` is then a
# whole installation. The wheel for arm64 carries the client (forkd) only.
#
#   wheels.sh           build both
#   wheels.sh amd64     build one: amd64 or arm64
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
work=$root/.cache/wheels
dist=$root/dist
venv=$work/venv
mkdir -p "$work" "$dist"
rm -f "$dist"/forkd-*.whl

# The pins of the tools that make wheels.
if [ ! -e "$venv/ready" ]; then
	rm -rf "$venv"
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check build==1.3.0 wheel==0.45.1
	touch "$venv/ready"
fi

rm -rf "$work/pure"
"$venv/bin/python" -m build --wheel --outdir "$work/pure" "$root/sdk/python" >"$work/build.log" 2>&1 || {
	cat "$work/build.log" >&2
	exit 1
}

# $1: GOARCH, $2: platform tag, the rest: programs
wheel_for() {
	arch=$1 platform=$2
	shift 2
	rm -rf "$work/tree"
	"$venv/bin/wheel" unpack --dest "$work/tree" "$work"/pure/forkd-*.whl >/dev/null
	set -- "$@"
	tree=$(echo "$work"/tree/forkd-*)
	version=${tree##*/forkd-}
	data=$tree/forkd-$version.data
	mkdir -p "$data/scripts" "$data/data/share/forkd"
	for program; do
		(cd "$root" && CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath \
			-ldflags "-s -w -X main.version=$version" -o "$data/scripts/$program" "./cmd/$program")
	done
	cp -R "$root/recipes" "$data/data/share/forkd/recipes"
	# deps.sh finds its list at the same place as in the source tree.
	mkdir -p "$data/data/share/forkd/scripts" "$data/data/share/forkd/packaging/debian"
	cp "$root/scripts/deps.sh" "$data/data/share/forkd/scripts/"
	cp "$root/packaging/debian/packages.txt" "$data/data/share/forkd/packaging/debian/"
	cp "$root/LICENSE" "$data/data/share/forkd/"
	"$root/scripts/notice.sh" "$data"/scripts/* >"$data/data/share/forkd/NOTICE"
	# The programs are static: any glibc will do, also none.
	info=$tree/forkd-$version.dist-info/WHEEL
	sed -i -e 's/^Root-Is-Purelib: .*/Root-Is-Purelib: false/' -e "s/^Tag: .*/Tag: py3-none-$platform/" "$info"
	"$venv/bin/wheel" pack --dest-dir "$dist" "$tree" >/dev/null
	echo "wheels: $(cd "$dist" && ls forkd-"$version"-py3-none-*"${platform##*_2_17_}".whl)"
}

case ${1-all} in
all | amd64) wheel_for amd64 manylinux_2_17_x86_64 forkd forkd-agent forkd-vmm forkd-spawn forkd-net ;;
esac
case ${1-all} in
all | arm64) wheel_for arm64 manylinux_2_17_aarch64 forkd ;;
esac
