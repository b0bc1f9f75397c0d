#!/bin/sh
# java-run [FILE]: compiles and runs a program of one source file in the warm JVM, from FILE or standard
# input. The program's main gets no arguments. An error's trace is in the output, and the status is 1.
set -e
[ $# -le 1 ] || { echo "usage: java-run [FILE]" >&2; exit 2; }
[ $# -eq 0 ] || exec <"$1"
nc -N -U /tmp/java-run.sock | {
	read -r status || { echo "java-run: the warm JVM gave no answer: see /tmp/forkd-start.log" >&2; exit 125; }
	cat
	exit "$status"
}
