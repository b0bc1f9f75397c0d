// Package client is the daemon's end of a VMM process: it spawns and adopts
// processes, hands them descriptors, asks them, and hears their events. A Process
// is one of them, a Ref names it across a daemon's restart. Package server is the
// other end, package wire what goes between. It knows nothing of KVM. The trap: a
// VMM is not to be trusted, since its guest may have taken it over; what breaks the
// protocol is ended.
package client
