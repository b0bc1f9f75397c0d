// Package network gives VMs their wires to forkd-net: it judges which policy a sandbox gets
// (Judge), binds VMs (Bind), keeps the connection to forkd-net (Run), and gives every VM a new
// wire when that process was replaced. It knows VMs by what they can do with a wire, and no
// sandboxes, snapshots or requests. Package netproc below it starts the process. The trap: a
// wire may be without its process at any time, so nothing here fails a fork; what is missing
// is made up for when forkd-net is there. An operator's tap is the exception (BindTap): without
// it there is no fork, and the kernel gives it to one process at a time.
package network
