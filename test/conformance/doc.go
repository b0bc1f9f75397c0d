// Package conformance specifies forks of a running machine for any implementation: a suite over the
// REST API alone. It owns the canaries set in a guest before an instant, the operations that make
// another guest from that instant, and the table of both. It inspects no state of the host. It
// contains only tests. The trap: FORKD_CONFORMANCE_URL selects an existing runtime
// (docs/inside/testing.md has the whole command). Without it the suite starts a daemon, which needs
// KVM.
package conformance
