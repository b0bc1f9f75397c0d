// Package lifebench is the benchmark of paused sandboxes. It compares a pause with a diff branch of
// the same sandbox, a resume with a fork from a chain of the same depth, and a request with a key
// with one without. It also measures the cost of a paused sandbox to the daemon. The package owns
// the order of the measurement and the figures; it prints no output. The trap: only the daemon's
// own figures show the size of its heap, and they include garbage, so the least of many readings is
// used.
package lifebench
