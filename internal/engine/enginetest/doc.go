// Package enginetest is a test suite for the behavior expected by callers of the engine: kinds of
// errors, states of snapshots and sandboxes, lists, tags, refusals, pools, deletions and contexts
// that end. The real engine runs it over fake VMMs, and so does every fake of the engine. A fake
// that fails it does not represent the engine. The suite must hold for all of them, so it has no
// numbers that only one can produce.
package enginetest
