// Package network connects VMs to forkd-net through wires, the pairs of sockets of their network
// links. It evaluates the policy of a sandbox (Judge), binds VMs (Bind), keeps the connection to
// forkd-net (Run), and gives every VM a new wire when that process was replaced. It knows VMs only
// through an interface, and knows no sandboxes, snapshots or requests. Package netproc below it
// starts the process. A wire may lose its process at any time, so a missing process never fails a
// fork: Run catches up when forkd-net is back. The exception is an operator's tap (BindTap): a fork
// fails without it, and the kernel gives it to one process at a time.
package network
