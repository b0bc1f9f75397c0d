// Package reboot boots a host of VMs anew: a machine of the test's own, with sandboxes that are paused in it and others that
// run. It drives the machine from outside, as its user does, by the programs in bin. It has no code of its own but tests.
// The trap: the machine takes memory of this host and half a minute to fill; it is removed at the end, whatever happens.
package reboot
