// Package hostileagent tests the host's clients of a guest's agent against an agent that breaks the
// protocol with endless, oversized, reordered, duplicated and truncated answers. Each attack must
// end its call with an error, in bounded time and memory. The package attacks the daemon's end of
// calls from a guest, its forks, in the same way. It contains only tests. The trap: an attack lasts
// until the client closes the connection. A client that never does so fails by its deadline, not by
// the end of the attack.
package hostileagent
