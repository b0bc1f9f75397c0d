// Package peers races forkd's fork with what else gives isolated guests on the same host:
// containers (runc, crun), gVisor, Firecracker. It owns how each of them is prepared,
// started, asked for a first answer and ended, and the race; it prints nothing and knows no
// daemon. It runs on the host of the VMs. The trap: a peer's programs may lie in a root
// tree of their own (Host.Root), and then run in it by chroot; their paths are not ours.
package peers
