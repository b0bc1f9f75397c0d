#!/bin/sh
# Runs the suites of integrations/ with the pinned frameworks of integrations/requirements.txt, against the daemon of
# FORKD_URL or the one that forkd finds, on the snapshot FORKD_TEST_SNAPSHOT (py). Each suite has its own environment
# in .cache/integrations. It prints one line per suite: passed, failed, or not installable with the error.
#
#   integrations.sh [folder...]              run these suites only
#   integrations.sh --install [folder...]    only install what they need
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cache=$root/.cache/integrations
mkdir -p "$cache"
only_install=
[ "${1-}" != --install ] || { only_install=1; shift; }
[ -n "${FORKD_BIN-}" ] || [ ! -x "$root/bin/forkd" ] || export FORKD_BIN="$root/bin/forkd"

# interpreter NAME prints a Python of that version which runs. A shim of pyenv may be one that does not.
interpreter() {
	[ "$1" = - ] && { echo python3; return; }
	for p in "$1" "$HOME"/.pyenv/versions/"${1#python}".*/bin/python; do
		"$p" -c '' 2>/dev/null && { echo "$p"; return; }
	done
}

# install DIR PYTHON REQUIREMENTS... makes an environment, unless it has these requirements already.
install() {
	at=$1 python=$2
	shift 2
	[ "$(cat "$at/ready" 2>/dev/null)" = "$*" ] && return
	rm -rf "$at"
	"$python" -m venv "$at" &&
		"$at/bin/python" -m pip install --quiet --disable-pip-version-check "$@" 'pytest>=8,<10' 'anyio>=4.12' \
			-e "$root/sdk/python" -e "$root/integrations/$name" &&
		echo "$*" >"$at/ready"
}

# run_npm runs a suite of npm. Its package-lock.json has the pins.
run_npm() {
	if ! command -v npm >"$log" 2>&1; then
		echo "$name: not installable: there is no npm"
	elif ! (cd "$root/sdk/typescript" && "$root/scripts/sdk-typescript.sh" &&
		cd "$root/integrations/$name" && { cmp -s package-lock.json node_modules/.forkd-lock || {
			npm ci --silent --no-audit --no-fund && cp package-lock.json node_modules/.forkd-lock
		}; }) >"$log" 2>&1; then
		echo "$name: not installable: $(grep -v '^$' "$log" | tail -1)"
	elif [ -n "$only_install" ]; then
		:
	elif (cd "$root/integrations/$name" && timeout 1800 npm test) >"$log" 2>&1; then
		echo "$name: passed: $(grep -E '^(# |ℹ )pass' "$log")"
	else
		echo "$name: failed: $(grep -E '^(# |ℹ )fail' "$log") ($log)"
		failed=1
	fi
}

failed=0
run() {
	name=$1 want=$2
	shift 2
	log=$cache/$name.log
	if [ "$want" = npm ]; then
		run_npm
		return
	fi
	python=$(interpreter "$want")
	if [ -z "$python" ]; then
		echo "$name: not installable: there is no $want"
	elif ! install "$cache/$name" "$python" "$@" >"$log" 2>&1; then
		echo "$name: not installable: $(grep -v '^$' "$log" | tail -1)"
	elif [ -n "$only_install" ]; then
		:
	elif (cd "$root/integrations" && timeout 1800 "$cache/$name/bin/python" -m pytest -q "$name") >"$log" 2>&1; then
		echo "$name: passed: $(tail -1 "$log")"
	else
		echo "$name: failed: $(tail -1 "$log") ($log)"
		failed=1
		return
	fi
	case $(cat "$cache/$name/ready" 2>/dev/null) in '') failed=1 ;; esac
}

while read -r name want requirements; do
	case $name in '#'* | '') continue ;; esac
	case " ${*:-$name} " in *" $name "*) ;; *) continue ;; esac
	# shellcheck disable=SC2086 # the requirements are words
	run "$name" "$want" $requirements </dev/null
done <"$root/integrations/requirements.txt"
exit $failed
