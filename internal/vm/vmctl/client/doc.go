// Package client is the daemon's end of a VMM process: it spawns and adopts processes, passes them
// descriptors, sends them requests, and receives their events. A Process is one of them; a Ref
// names it across a daemon's restart. Package server is the other end, package wire the protocol.
// The package does not know KVM.
//
// A VMM is not trusted, since its guest may have taken it over. If it breaks the protocol, it is
// killed.
package client
