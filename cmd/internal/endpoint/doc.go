// Package endpoint finds the daemon that a command talks to: the one that was
// named, else that of this host, else that of the machine; and starts what is
// not there. It owns the decision and its memory (which place was used last, so
// that a change is told once); starting is left to the machine, or to `forkd
// serve`. The commands of forkd and
// forkd-bench call it. The trap: deciding measures the
// host's KVM, which takes a moment the first time, so ask once per command.
package endpoint
