#!/bin/sh
# Lists direct dependencies with newer versions: Go modules, npm packages, and the Python pins of integrations/ and the
# SDK. With --apply it updates the Go modules to their newest minor versions; run make test and make lint then.
#
#   outdated.sh [--apply]
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

echo "Go modules:"
direct=$(go list -m -f '{{if not (or .Main .Indirect)}}{{.Path}}{{end}}' all)
# shellcheck disable=SC2086 # the modules are words
go list -m -u -f '{{if .Update}}  {{.Path}} {{.Version}} -> {{.Update.Version}}{{end}}' $direct | grep . || true

for d in sdk/typescript integrations/forkd-ai-sdk; do
	echo "npm, $d:"
	(cd "$d" && npm outdated --parseable 2>/dev/null | awk -F: '{ print "  " $2 " -> " $4 }') || true
done

echo "Python pins:"
cat integrations/requirements.txt sdk/python/tests/requirements.txt sdk/python/scripts/requirements.txt |
	grep -o '[A-Za-z0-9_.-]*==[0-9][^ ;]*' | sort -u | while IFS='=' read -r name _ version; do
	newest=$(python3 -m pip index versions "$name" 2>/dev/null | sed -n '1s/.*(\(.*\))/\1/p')
	[ -z "$newest" ] || [ "$newest" = "$version" ] || echo "  $name $version -> $newest"
done

if [ "${1-}" = --apply ]; then
	# shellcheck disable=SC2086 # the modules are words
	go get -u $direct
	go mod tidy
fi
