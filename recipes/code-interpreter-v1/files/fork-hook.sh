#!/bin/sh
# Tells the code interpreter that this is a clone: it renews a kernel's random state and environment
# before the kernel's next execution. Nothing is woken here: who runs no code pays for one small process.
dir=/run/forkd-code-interpreter
[ -d "$dir" ] || exit 0
umask 077
env -0 >"$dir/env" || exit 1
read -r id </proc/sys/kernel/random/uuid
echo "$id" >"$dir/fork" # after the environment: the server looks here first
