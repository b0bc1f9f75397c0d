// Package oracle takes running guests through random steps, and leaves the judgement to the
// daemon's oracle (sandbox.Config.Oracle): every snapshot that comes of it is compared, page by
// page, with what its source was. Three tests share a daemon: one sandbox after the other, all
// at once while the daemon is ended and started, and connections in flight over a guest's socket
// device while it is branched. It owns the steps; what is asked of children is little. It has no
// code of its own but tests. The seed is printed; FORKD_TEST_SEED repeats it, as far as a guest's
// own time lets anything be repeated. FORKD_TEST_SOAK=5m goes on for that long (make soak). The
// trap: what a step may be refused for is listed where the step is, and nothing else passes.
package oracle
