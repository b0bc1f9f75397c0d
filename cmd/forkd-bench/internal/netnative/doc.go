// Package netnative measures the network's parts without guests and without KVM:
// Linux's TCP behind a tap stands for the guest, its engine is in this process, and
// forkd-net is a process of its own, with an "internet" in a network namespace. It
// owns those, and their figures. The trap: Run changes the network of the process
// that it runs in, which must be in a network namespace of its own; Here sees to that.
package netnative
