#!/bin/sh
# Has the kernel of a machine count the system calls of forkd-vmm and forkd-net by thread, and reads
# what it has: what is used of the seccomp lists (docs/inside/vmm.md).
#
#   scripts/record-syscalls.sh start MACHINE
#   scripts/record-syscalls.sh read MACHINE DIR     # writes DIR/calls and DIR/requests
set -eu
forkd=${FORKD:-bin/forkd}
inside() { "$forkd" machine exec --name "$machine" -- sh -c "$1"; }
machine=$2
tracing=/sys/kernel/tracing
calls=$tracing/events/raw_syscalls/sys_enter
requests=$tracing/events/syscalls/sys_enter_ioctl
who='if comm == "forkd-vmm" || comm == "forkd-net"'
case $1 in
start)
	inside "[ -d $tracing/events ] || mount -t tracefs tracefs $tracing
echo 'hist:keys=common_pid.execname,id:size=131072 $who' > $calls/trigger
echo 'hist:keys=common_pid.execname,cmd.hex:size=65536 $who' > $requests/trigger"
	;;
read)
	inside "cat $calls/hist" > "$3/calls"
	inside "cat $requests/hist" > "$3/requests"
	tail -n 1 "$3/calls" "$3/requests" # what was dropped: for want of room a call may be missing
	;;
*)
	exit 2
	;;
esac
