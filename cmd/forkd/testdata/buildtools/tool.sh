#!/bin/sh
# Stands in for the host's tools that a build of a recipe runs, under the name of each. FORKD_TEST_BUILD is a folder
# for the steps: the step of the number in "stop" waits for its end, with a child.
set -eu
step() {
	echo "$1" >> "$FORKD_TEST_BUILD/steps"
	if [ "$(wc -l < "$FORKD_TEST_BUILD/steps")" = "$(cat "$FORKD_TEST_BUILD/stop")" ]; then
		trap '' TERM
		sleep 1000 &
		: > "$FORKD_TEST_BUILD/reached"
		wait
	fi
}

name=${0##*/}
case "$name $*" in
"apt-get indextargets"*)
	step "list sources"
	echo "http://mirror.test/debian/|bookworm|main|Debian|Debian|"
	;;
"apt-get --simulate"*)
	step "resolve"
	printf 'Inst libc6 (2.36-9 Debian:12 [amd64])\nInst python3 (3.11 Debian:12 [amd64])\n'
	;;
"apt-cache show"*)
	step "find kernel"
	printf 'Package: linux-image-cloud-amd64\nVersion: 6.12.0-1\nDepends: linux-image-6.12.0-test (= 6.12.0-1)\n\n'
	;;
"apt-get download"*)
	step "download kernel"
	head -c 1000 "$FORKD_TEST_BUILD/kernel.deb" > kernel.deb.part
	step "half a kernel"
	cp "$FORKD_TEST_BUILD/kernel.deb" kernel.deb
	rm kernel.deb.part
	step "whole kernel"
	;;
"mmdebstrap --unshare-helper"*)
	shift
	exec "$@"
	;;
"mmdebstrap "*)
	while [ $# -gt 2 ]; do shift; done
	tree=$1
	keys=$(mktemp -d "$TMPDIR/mmdebstrap.gpghome.XXXXXX")
	mkdir -p "$tree/var/lib/dpkg" "$tree/usr/bin" "$tree/usr/lib" "$tree/etc" "$tree/tmp" "$tree/dev" "$tree/run"
	step "update lists"
	for package in libc6 python3; do
		echo "Get:1 http://mirror.test/debian bookworm/main amd64 $package amd64 1 [1 kB]"
		step "download $package"
	done
	for package in libc6 python3; do
		echo "Unpacking $package (1) ..."
		head -c 100000 /dev/zero > "$tree/usr/lib/$package"
		step "unpack $package"
	done
	for package in libc6 python3; do
		echo "Setting up $package (1) ..."
		step "set up $package"
	done
	# By cat, which says why it cannot write.
	printf 'Package: libc6\nVersion: 2.36-9\n\nPackage: python3\nVersion: 3.11\n\n' | cat > "$tree/var/lib/dpkg/status"
	printf 'root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n' | cat > "$tree/etc/passwd"
	: > "$tree/etc/shadow"
	ln -s python3.11 "$tree/usr/bin/python3"
	find "$tree" -exec touch --no-dereference --date=@1000000000 {} +
	step "bootstrapped"
	rm -r "$keys"
	;;
"python3 -m pip"*)
	step "packages of PyPI"
	while [ "$1" != --target ]; do shift; done
	mkdir -p "$2/six-1.dist-info"
	step "installed"
	;;
"chroot "*)
	cd "$1"
	step "chroot $2"
	case "$2 ${7:-}" in
	"sh /tmp/forkd-pip") mkdir -p usr/local/lib/python3.11/dist-packages && mv tmp/forkd-pip/* usr/local/lib/python3.11/dist-packages ;;
	"tar "*) cat > /dev/null ;;
	esac
	;;
"mkfs.erofs "*)
	while [ $# -gt 2 ]; do shift; done
	step "pack root"
	find . -type f -print -exec cat {} + | LC_ALL=C sort > "$1"
	step "packed"
	;;
"mke2fs "*)
	while [ $# -gt 1 ]; do shift; done
	step "make disk"
	printf 'a file system' | dd of="$1" bs=4096 seek=3 conv=notrunc status=none
	step "made disk"
	;;
*)
	echo "$name is not expected to run with $*" >&2
	exit 1
	;;
esac
