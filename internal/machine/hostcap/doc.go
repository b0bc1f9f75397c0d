// Package hostcap finds out what this host can do: it probes, and decides
// between the host's own KVM and the machine. It owns the probes, the speed
// measurement and its cache; it installs and changes nothing. The CLI and
// package machine call it. The trap: a /dev/kvm that opens proves little, since
// some backends emulate a guest kernel a hundred times too slowly, so only the
// measurement decides.
package hostcap
