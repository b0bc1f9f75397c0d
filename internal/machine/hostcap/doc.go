// Package hostcap probes the features of this host, and chooses between the host's own KVM and the machine. It
// owns the probes, the speed measurement and its cache. It installs and changes nothing. The CLI and package
// machine call it. Beware: a /dev/kvm that opens proves little, because some backends emulate a guest kernel a
// hundred times too slowly. Only the measurement decides.
package hostcap
