# Puts packages of the npm registry into a tree of mmdebstrap. Their scripts do not run, so the host's
# npm can do it; it compares each package with the digest that the registry has of it.
# Runs as root, or as root of the user namespace that mmdebstrap --unshare-helper makes.
#   $1 tree  $2... packages
set -eu
tree=$1
shift
stage=$tree/tmp/forkd-npm
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage"
echo '{"private":true}' > "$stage/package.json"

npm install --prefix "$stage" --cache "$stage/cache" --save-exact --ignore-scripts --no-audit --no-fund \
	--no-update-notifier --no-progress --install-strategy=hoisted --os=linux --cpu=x64 --libc=glibc -- "$@"

# Programs find the modules from wherever they lie: Node looks in /node_modules last, and for import, too,
# which does not look at NODE_PATH.
chroot "$tree" sh -eu -c '
stage=$1 modules=/usr/local/lib/node_modules
mkdir -p "$modules" /usr/local/bin
cp -a "$stage/node_modules/." "$modules/"
cp "$stage/package-lock.json" "$modules/.package-lock.json"
chown -R 0:0 "$modules"
[ -e /node_modules ] || ln -s usr/local/lib/node_modules /node_modules
for f in "$modules"/.bin/*; do
	[ -e "$f" ] || continue
	ln -sf "../lib/node_modules/.bin/${f##*/}" "/usr/local/bin/${f##*/}"
done
' sh /tmp/forkd-npm
