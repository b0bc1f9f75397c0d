#!/bin/sh
# Installs the Debian packages named in packaging/debian/packages.txt. It is
# quick and changes nothing when all is there. On Debian 12 it enables backports
# on the mirror that the machine's own apt sources name.
#
#   deps.sh              install what is missing
#   deps.sh --check      only tell what is missing; exit code 1 if anything is
#   deps.sh --backports  only print the apt source that would be added
#
# LIST names another file with packages. APT_DIR and OS_RELEASE are for tests.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
list=${LIST:-$root/packaging/debian/packages.txt}
apt_dir=${APT_DIR:-/etc/apt}
os_release=${OS_RELEASE:-/etc/os-release}
added=$apt_dir/sources.list.d/forkd-backports.sources
series=6.12 # of the kernel for guests and the machine

say() { echo "deps: $*" >&2; }
die() { say "$*"; exit 1; }

# Prints "package minimum suite" for every line that names a package.
packages() { sed -e 's/#.*//' "$list" | awk 'NF >= 3 { print $1, $2, $3 }'; }

installed() { # package minimum
	have=$(dpkg-query -W -f '${db:Status-Status} ${Version}' "$1" 2>/dev/null) || return 1
	case $have in "installed "*) ;; *) return 1 ;; esac
	[ "$2" = - ] || dpkg --compare-versions "${have#installed }" ge "$2"
}

missing() { # suite
	packages | while read -r name minimum suite; do
		[ "$suite" = "$1" ] || continue
		installed "$name" "$minimum" || echo "$name"
	done
}

# The kernel package is fetched, not installed: apt only has to know it.
kernel_known() { apt-cache show linux-image-cloud-amd64 2>/dev/null | grep -q "^Version: $series"; }

# Prints "uri|suites|components|signed-by" for every binary source, of both formats.
sources() {
	for f in "$apt_dir"/sources.list "$apt_dir"/sources.list.d/*.list; do
		[ -f "$f" ] || continue
		sed -e 's/#.*//' "$f" | awk '
			$1 == "deb" {
				key = ""; i = 2
				if ($i ~ /^\[/) {
					for (;; i++) {
						o = $i; gsub(/[][]/, "", o)
						if (o ~ /^signed-by=/) key = substr(o, 11)
						if ($i ~ /\]$/ || i >= NF) break
					}
					i++
				}
				line = ""
				for (j = i + 2; j <= NF; j++) line = line (line == "" ? "" : " ") $j
				print $i "|" $(i + 1) "|" line "|" key
			}'
	done
	for f in "$apt_dir"/sources.list.d/*.sources; do
		[ -f "$f" ] || continue
		awk '
			function flush() {
				if (uris != "" && types ~ /(^| )deb( |$)/ && tolower(enabled) != "no") {
					split(uris, u, " ")
					print u[1] "|" suites "|" components "|" key
				}
				types = uris = suites = components = key = enabled = field = ""
			}
			/^#/ { next }
			/^[ \t]*$/ { flush(); next }
			/^[ \t]/ { # a continuation: more values, or an embedded key, which cannot be passed on
				sub(/^[ \t]+/, "")
				if (field == "uris") uris = uris " " $0
				if (field == "suites") suites = suites " " $0
				if (field == "signed-by") key = ""
				next
			}
			{
				at = index($0, ":"); field = tolower(substr($0, 1, at - 1))
				v = substr($0, at + 1); gsub(/^[ \t]+|[ \t]+$/, "", v)
				if (field == "types") types = v
				if (field == "uris") uris = v
				if (field == "suites") suites = v
				if (field == "components") components = v
				if (field == "signed-by") key = v
				if (field == "enabled") enabled = v
			}
			END { flush() }' "$f"
	done
}

codename() { sed -n 's/^VERSION_CODENAME=//p' "$os_release" | tr -d '"'; }

# Prints the source to add; nothing if backports are enabled or not needed.
backports_source() {
	release=$(codename)
	[ "$release" = bookworm ] || return 0 # later releases have all that is needed
	sources | awk -F '|' -v release="$release" '
		function has(list, word,    w, n, i) {
			n = split(list, w, " ")
			for (i = 1; i <= n; i++) if (w[i] == word) return 1
			return 0
		}
		has($2, release "-backports") { enabled = 1 }
		!found && has($2, release) && has($3, "main") { found = 1; uri = $1; key = $4 }
		END {
			if (enabled) exit 0
			if (!found) exit 3
			print "Types: deb\nURIs: " uri "\nSuites: " release "-backports\nComponents: main"
			if (key != "") print "Signed-By: " key
		}'
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif ! command -v sudo >/dev/null; then
		die "packages are missing and this is neither root nor is there sudo; run as root: make deps"
	elif [ -t 0 ]; then
		sudo "$@"
	else
		sudo -n "$@" || die "sudo asks for a password; run in a terminal, or as root: make deps"
	fi
}

apt_get() {
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600 "$@" >&2
}

enable_backports() {
	source=$(backports_source) || die "no apt source for Debian $(codename) main found in $apt_dir; add one"
	[ -n "$source" ] || return 0
	say "enabling $(codename)-backports on the mirror of this machine's apt sources"
	echo "$source" | as_root tee "$added" >/dev/null
}

main() {
	command -v dpkg-query >/dev/null ||
		die "this is not Debian; install yourself:" $(packages | cut -d ' ' -f 1)
	plain=$(missing -)
	newer=$(missing backports)
	known=yes
	kernel_known || known=
	[ -n "$plain$newer" ] || [ -z "$known" ] || return 0
	if [ "${1-}" = --check ]; then
		say "missing:" $plain $newer ${known:-"(kernel $series in the package lists)"}
		return 1
	fi
	say "installing:" $plain $newer ${known:-"(package lists)"}
	enable_backports
	apt_get update
	[ -z "$plain" ] || apt_get install --no-install-recommends $plain
	# The suite must be named: otherwise the parts of QEMU that backports also
	# have would be wanted in two versions at once.
	if [ -n "$newer" ]; then
		suite=
		[ "$(codename)" != bookworm ] || suite="-t bookworm-backports"
		apt_get install --no-install-recommends $suite $newer
	fi
	kernel_known || say "warning: apt knows no $series kernel; the machine may refuse to start"
}

case ${1-} in
--backports) backports_source ;;
"" | --check) main "$@" ;;
*) die "unknown argument $1" ;;
esac
