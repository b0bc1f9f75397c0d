#!/bin/sh
# node-run [FILE]: runs a program in the warm Node process, from FILE or standard input.
# The program is the body of an async function with require and console. Its result is the exit status.
set -e
[ $# -le 1 ] || { echo "usage: node-run [FILE]" >&2; exit 2; }
[ $# -eq 0 ] || exec <"$1"
nc -N -U /tmp/node-run.sock | {
	read -r status || { echo "node-run: the warm process gave no answer: see /tmp/forkd-start.log" >&2; exit 125; }
	cat
	exit "$status"
}
