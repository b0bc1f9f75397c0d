// Package procs runs commands in the guest and serves them as process.Process. It owns every
// command from start to end: pipes or terminal, the delivery of output to subscribers, the
// deadline, and the record of its end. Package reap waits for children, and package account knows
// users.
//
// A subscriber that does not read blocks the command. This backpressure limits the agent's memory,
// so every subscriber must be removed when its caller leaves. In a clone, all callers of the source
// seem to leave at the same time; this must not end any process.
package procs
