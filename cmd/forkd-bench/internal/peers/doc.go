// Package peers races forkd's fork against other ways to start isolated guests on the same host:
// containers (runc, crun), gVisor, Firecracker. It owns the race, and the preparation, start, first
// answer and end of each peer's guests. It prints no output and knows no daemon. It runs on the
// host of the VMs. The trap: a peer's programs may be in a root tree (Host.Root) and run in it by
// chroot. Their paths then differ from paths on this host.
package peers
