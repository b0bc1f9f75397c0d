// Package endpoint finds the daemon for a command: the named one, otherwise this host's, otherwise
// the machine's. It starts the daemon or machine if needed. It owns this decision and remembers the
// last place, to report a change once. The machine, or `forkd serve`, does the start itself. The
// commands of forkd and forkd-bench use it. The trap: the decision measures the host's KVM, which
// takes a moment the first time, so call it once per command.
package endpoint
