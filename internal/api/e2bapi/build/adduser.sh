# Makes account $1 if it is missing, and lets it do everything if $2 is "true".
set -e
sh=/bin/bash
[ -x "$sh" ] || sh=/bin/sh
if id -u "$1" >/dev/null 2>&1; then
	:
elif command -v useradd >/dev/null; then
	useradd --create-home --shell "$sh" --user-group "$1"
else # for example, Alpine
	case $1 in
	"" | -* | *[!a-z0-9_-]*) echo "invalid user name '$1'" >&2; exit 3 ;;
	esac
	id=1000
	while grep -q "^[^:]*:[^:]*:$id:" /etc/passwd /etc/group; do id=$((id + 1)); done
	echo "$1:x:$id:" >>/etc/group
	echo "$1:x:$id:$id::/home/$1:$sh" >>/etc/passwd
	mkdir -p "/home/$1"
	chown "$id:$id" "/home/$1"
fi
if [ "$2" = true ]; then
	if command -v usermod >/dev/null && grep -q ^sudo: /etc/group; then
		usermod -aG sudo "$1"
	fi
	mkdir -p /etc/sudoers.d
	echo "$1 ALL=(ALL:ALL) NOPASSWD: ALL" >"/etc/sudoers.d/e2b-$1"
	chmod 0440 "/etc/sudoers.d/e2b-$1"
fi
