# Turns a tree of mmdebstrap into a root image, the same bytes for the same packages.
# Runs as root, or as root of the user namespace that mmdebstrap --unshare-helper makes.
#   $1 tree  $2 tar with forkd's and the recipe's files  $3 image to write
#   $4 default user  $5 working folder  $6 none|lz4  $7 a file that is older than the tree  $8 UUID
set -eu
tree=$1 additions=$2 out=$3 user=$4 workdir=$5 compression=$6 before=$7 uuid=$8
cd "$tree"

# What is not in a package is as old as the newest file that is: the image then
# depends on the packages alone, and Python's compiled files match their sources' times.
epoch=$(find usr -xdev -type f ! -newer "$before" -printf '%T@\n' | sort -rn | head -n 1 | cut -d. -f1)
[ -n "$epoch" ] || { echo "the tree has no packaged files" >&2; exit 1; }
export SOURCE_DATE_EPOCH="$epoch"

# The account that clients act as by default; sudo without a password where there is sudo.
if ! grep -q '^user:' etc/passwd; then
	chroot . useradd --uid 1000 --user-group --create-home --shell /bin/bash user
fi
if [ -d etc/sudoers.d ]; then
	printf 'user ALL=(ALL:ALL) NOPASSWD: ALL\n' > etc/sudoers.d/forkd-user
	chmod 0440 etc/sudoers.d/forkd-user
fi

# Through chroot: a symlink in the tree must not lead out of it.
rm -f etc/hostname etc/resolv.conf
chroot . tar --extract --file=- --numeric-owner --same-permissions --no-same-owner < "$additions"
if ! grep -q "^$user:" etc/passwd; then
	echo "forkd: user $user does not exist in the image; name root, user, or one that a package makes" >&2
	exit 1
fi
# Kernel modules of the recipe, for modprobe in the guest.
for modules in usr/lib/modules/*/; do
	[ -d "$modules" ] || continue
	chroot . depmod "$(basename "$modules")"
done
chroot . sh -c '[ -d "$2" ] || { mkdir -p "$2" && chown "$1:" "$2"; }' sh "$user" "$workdir"

# The guest mounts its own devices; only root may make nodes, so they would tell who built.
rm -rf dev/*

# Traces of the build, and what must not be the same in every guest.
rm -rf var/lib/apt/lists/* var/cache/apt/* var/cache/ldconfig/* var/cache/debconf/*-old var/lib/dpkg/*-old \
	var/backups/* var/log/* run/* tmp/* var/tmp/* etc/passwd- etc/group- etc/shadow- etc/gshadow- etc/subuid- etc/subgid- \
	etc/.pwd.lock etc/ssh/ssh_host_* var/lib/dbus/machine-id var/lib/systemd/random-seed root/.bash_history
mkdir -p var/lib/apt/lists/partial var/cache/apt/archives/partial var/log/apt
: > etc/machine-id
sed -i -E "s/^([^:]*:[^:]*:)[0-9]+:/\1$((epoch / 86400)):/" etc/shadow

find . -xdev -newer "$before" -exec touch --no-dereference --date="@$epoch" {} +

set -- --quiet "-T$epoch" --preserve-mtime -U "$uuid"
if [ "$compression" = lz4 ]; then
	set -- "$@" -zlz4hc
fi
exec mkfs.erofs "$@" "$out" .
