// Package hostnet connects a sandbox to a network of the operator's: an existing tap device, for
// raw IP, VPNs and CNI. It opens the taps allowed by the operator, for the daemon. Package tap
// below it is the VMM's side. It creates no devices, assigns no addresses, and does not know
// sandboxes.
//
// TUNSETIFF creates a device if the name does not exist. Open therefore looks up the name first. If
// the device turns out not to be persistent, Open closes its descriptor, and the device disappears
// with it.
package hostnet
