// Package oracle takes running guests through random steps. The daemon's oracle
// (sandbox.Config.Oracle) judges them: it compares every snapshot, page by page, with its source.
// Three tests share a daemon: one sandbox after the other; all in parallel while the daemon is
// ended and started; and connections in flight over a guest's socket device while it is branched.
// The package owns the steps, and checks little in children. It contains only tests. The seed is
// printed; FORKD_TEST_SEED repeats a run, as far as the guests' timing allows. FORKD_TEST_SOAK=5m
// sets the duration (make soak). The trap: each step lists its acceptable refusals, and no other
// refusal passes.
package oracle
