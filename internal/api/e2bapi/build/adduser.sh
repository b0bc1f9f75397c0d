# Makes account $1 if it is missing, and lets it do everything if $2 is "true".
set -e
id -u "$1" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash --user-group "$1"
if [ "$2" = true ]; then
	usermod -aG sudo "$1"
	mkdir -p /etc/sudoers.d
	echo "$1 ALL=(ALL:ALL) NOPASSWD: ALL" >"/etc/sudoers.d/e2b-$1"
	chmod 0440 "/etc/sudoers.d/e2b-$1"
fi
