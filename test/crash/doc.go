// Package crash kills processes by SIGKILL at every step of changes to the store or to the list of
// sandboxes, and checks the result. All listed objects are intact, incomplete objects are not
// listed, there are no leftovers, and a source survives if it can. The package owns the operations
// and the expected results. The steps are package failpoint's; a run without kills finds them. The
// package contains only tests. The trap: leftovers are found by comparing names before and after,
// so a test must remove all of its objects.
package crash
