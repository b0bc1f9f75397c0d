// Package lifebench is the benchmark of sandboxes that are paused: how long a pause takes beside a diff
// branch of the same sandbox, a resume beside a fork from a chain as deep, what a paused sandbox costs the
// daemon, and what a request with a key costs beside one without. It owns the order of the measurement
// and the figures; it prints nothing. The trap: what the daemon's heap holds is known only to its own
// figures, and those count garbage as well, so the least of many is taken.
package lifebench
