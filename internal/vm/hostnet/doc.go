// Package hostnet is a sandbox's way to a network that is the operator's: a tap device which
// somebody else made, for raw IP, VPNs and CNI. It opens the taps that the operator allowed,
// for the daemon; package tap below it is what a VMM does with one. It makes no devices, gives
// none an address, and knows no sandboxes.
//
// The trap: TUNSETIFF makes a device where there is none of that name. So a name is looked up
// first, and what turns out not to outlive its descriptor is closed again, and with that gone.
package hostnet
