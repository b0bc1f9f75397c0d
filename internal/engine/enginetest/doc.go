// Package enginetest is what those above the engine rely on, as a suite of tests: kinds of
// errors, states of snapshots and sandboxes, lists, tags, refusals, pools, deletions and
// contexts that end. The real engine runs it over fake VMMs, and so does
// every fake of the engine: a fake that does not pass is a fake of something else. The
// trap: it must hold for all of them, so it has no numbers that only one can give.
package enginetest
