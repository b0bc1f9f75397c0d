// Package reboot reboots a host of VMs: a separate machine with paused and running sandboxes. It
// drives the machine from outside, as its user does, with the programs in bin. It contains only
// tests. The trap: the machine takes memory of this host and half a minute to fill. The test always
// removes it at the end.
package reboot
