// Package conformance says what forks of a running machine are, whoever makes
// them: a suite over the REST API alone. It owns the canaries that are set in a
// guest before an instant, the operations that lead to another guest of that
// instant, and the table of both; it looks at nothing on the host. It has no
// code of its own but tests. The trap: FORKD_CONFORMANCE_URL points it at a
// runtime that is there already (docs/inside/testing.md has the whole command); without
// it the suite starts a daemon of its own, which needs KVM.
package conformance
