// Package netnative measures the network's parts without guests and without KVM. Linux's TCP behind
// a tap stands for the guest, the engine runs in this process, forkd-net is a separate process, and a
// network namespace serves as the "internet". The package owns them and their figures. The trap:
// Run changes the network of its process, which must be in a separate network namespace. Here takes
// care of this.
package netnative
