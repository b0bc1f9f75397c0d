#!/bin/sh
# Builds all files of a release into dist/release: archives of the programs, the Debian package, Python
# wheels, an image of the daemon (packaging/ociimage), a software bill of materials, NOTICE, CHANGES.md
# and SHA256SUMS. The same commit, version and Go give the same bytes.
#
#   VERSION=0.1.0 release.sh
#   VERSION=0.1.0 release.sh archives image   only these parts: archives, deb, wheels, image, sbom
#
# The tree must be clean: the files must follow from a commit. FORKD_RELEASE_DIRTY=1 allows changes.
# PLATFORMS names other systems with a CLI, as "darwin/arm64"; empty: none.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

say() { echo "release: $*" >&2; }
die() { say "$*"; exit 1; }

version=${VERSION-}
number='(0|[1-9][0-9]*)'
word='(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)'
printf '%s\n' "$version" | tr '\n' ' ' | sed 's/ $//' | grep -Eqx \
	"$number\.$number\.$number(-$word(\.$word)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?" ||
	die "VERSION=$version is no semantic version; give one without a v, such as VERSION=0.1.0"

parts=${*:-archives deb wheels image sbom}
for part in $parts; do
	case $part in
	archives | deb | wheels | image | sbom) ;;
	*) die "unknown part $part: archives, deb, wheels, image or sbom" ;;
	esac
done
wanted() { case " $parts " in *" $1 "*) ;; *) return 1 ;; esac; }

commit=$(git rev-parse HEAD) || die "a release needs the git repository"
if [ -n "$(git status --porcelain)" ]; then
	[ "${FORKD_RELEASE_DIRTY-}" = 1 ] || {
		git status --short >&2
		die "the tree has changes; commit them, or set FORKD_RELEASE_DIRTY=1"
	}
	say "warning: the tree has changes that no commit has"
	commit=$commit-dirty
fi
# other FILE: whether a file of an SDK names another version
other() { ! grep -qE "^ *\"?(version|VERSION)\"? *[:=] *\"$version\"" "$1"; }
for file in sdk/python/pyproject.toml sdk/python/src/forkd/_version.py sdk/typescript/package.json; do
	if other "$file"; then say "warning: $file has another version than $version"; fi
done

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH VERSION="$version" CGO_ENABLED=0 TZ=UTC LC_ALL=C
# Programs must not depend on the state of a checkout, nor on the settings of a user.
export GOFLAGS=-buildvcs=false GOAMD64=v1 GOARM64=v8.0 GOWORK=off GOEXPERIMENT=
umask 022
sbom_tool=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
ldflags="-s -w -X main.version=$version"

out=$root/dist/release
work=$root/.cache/release
bin=$work/bin
rm -rf "$out" "$work"
mkdir -p "$out" "$work"

# The changelog first: it is quick, and a broken fragment ends the release.
go run ./packaging/changes "$version" >"$out/CHANGES.md"

say "programs"
platforms=${PLATFORMS-linux/arm64 darwin/arm64 darwin/amd64 windows/amd64}
mkdir -p "$bin/linux-amd64"
for program in forkd forkd-agent forkd-idmap forkd-kube forkd-net forkd-spawn forkd-vmm; do
	GOOS=linux GOARCH=amd64 go build -trimpath -ldflags "$ldflags" -o "$bin/linux-amd64/" "./cmd/$program"
done
for platform in $platforms; do
	os=${platform%/*} arch=${platform#*/}
	mkdir -p "$bin/$os-$arch"
	GOOS=$os GOARCH=$arch go build -trimpath -ldflags "$ldflags" -o "$bin/$os-$arch/" ./cmd/forkd
done
"$bin/linux-amd64/forkd" generate "$work/generated"
scripts/notice.sh "$bin"/*/forkd* >"$out/NOTICE"

# tree DIR: the files that all archives have
tree() {
	mkdir -p "$1"
	cp LICENSE README.md "$out/NOTICE" "$1/"
}

# completions DIR
completions() {
	mkdir -p "$1/completions"
	cp "$work/generated/forkd.bash" "$work/generated/_forkd" "$work/generated/forkd.fish" "$1/completions/"
}

# pack NAME: an archive of $work/NAME, sorted, of one date, and of root's files
pack() {
	(cd "$work" && find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +)
	case $1 in
	*windows*) (cd "$work" && find "$1" -type f | sort | zip -q -X -9 "$out/$1.zip" -@) ;;
	*)
		tar -C "$work" --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r-w,a+X \
			--mtime="@$SOURCE_DATE_EPOCH" -cf "$work/$1.tar" "$1"
		gzip -9 -n <"$work/$1.tar" >"$out/$1.tar.gz"
		rm "$work/$1.tar"
		;;
	esac
}

if wanted archives; then
	say "archives"
	command -v zip >/dev/null || die "zip is missing: apt-get install zip"
	name=forkd-$version-linux-amd64
	tree "$work/$name"
	completions "$work/$name"
	mkdir "$work/$name/bin"
	cp "$bin"/linux-amd64/* "$work/$name/bin/"
	cp -R recipes "$work/generated/man" "$work/$name/"
	pack "$name"
	for platform in $platforms; do
		os=${platform%/*} arch=${platform#*/}
		name=forkd-$version-$os-$arch
		tree "$work/$name"
		cp "$bin/$os-$arch"/forkd* "$work/$name/"
		[ "$os" = windows ] || completions "$work/$name"
		pack "$name"
	done
fi

if wanted image; then
	say "image"
	go run ./packaging/ociimage --version "$version" --revision "$commit" --programs "$bin/linux-amd64" \
		--recipes recipes --doc LICENSE --doc "$out/NOTICE" "$out/forkd-$version-oci.tar"
fi

if wanted sbom; then
	say "bill of materials"
	# -test: without it, modules of programs are missing that the shortest way reaches through a test.
	GOBIN=$work/tools go install "$sbom_tool"
	"$work/tools/cyclonedx-gomod" mod -json -licenses -noserial -std -test -output-version 1.6 \
		-output "$work/module.cdx.json" . >"$work/sbom.log" 2>&1 || { cat "$work/sbom.log" >&2; exit 1; }
	go run ./packaging/sbom --version "$version" "$bin"/*/forkd* <"$work/module.cdx.json" \
		>"$out/forkd-$version.cdx.json"
fi

if wanted deb; then
	say "Debian package"
	scripts/deb.sh >"$work/deb.log" 2>&1 || { cat "$work/deb.log" >&2; exit 1; }
	cp dist/forkd_*_amd64.deb "$out/"
fi

if wanted wheels; then
	say "Python wheels"
	if other sdk/python/pyproject.toml; then
		say "WARNING: no wheels: sdk/python/pyproject.toml has another version than $version"
	elif scripts/wheels.sh >"$work/wheels.log" 2>&1; then
		cp dist/forkd-*.whl "$out/"
	elif [ -e .cache/wheels/venv/ready ]; then
		cat "$work/wheels.log" >&2
		die "the wheels failed"
	else
		tail -n 3 "$work/wheels.log" >&2
		say "WARNING: no wheels: their tools cannot be had (python3 with venv, and build and wheel from PyPI)"
	fi
fi

(cd "$out" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
say "dist/release:"
cat "$out/SHA256SUMS"
