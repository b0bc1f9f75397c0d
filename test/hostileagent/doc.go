// Package hostileagent tests the host's clients of a guest's agent against an agent
// that breaks the protocol: endless, oversized, reordered, duplicated and truncated
// answers. Each attack must end its call with an error, in bounded time and memory. The
// daemon's end of the calls that a guest begins, its forks, is attacked in the same way.
// It holds tests only. The trap: an attack goes on until the client hangs up, so a
// client that never does fails by its deadline, and not by the attack's end.
package hostileagent
