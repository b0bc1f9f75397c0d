// Package procs runs commands in the guest and serves them as process.Process.
// It owns every command from its start to its end: pipes or terminal, the
// fan-out of output to subscribers, the deadline, the record of its end. It
// does not wait for children itself (reap does) nor know users (account does).
// The trap: a subscriber that does not read holds the command up, which is the
// back-pressure that keeps the agent's memory bounded; so every subscriber must
// be let go when its caller leaves. In a clone all callers of the source seem to
// leave at once: no process may end by that.
package procs
