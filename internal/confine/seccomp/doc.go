// Package seccomp takes system calls from a process for good, a VMM's or forkd-net: it has the
// filters, and installs them. What they leave is data, one file per step in
// lists/, with a reason for each line; package compile makes the programs beside
// them, which are embedded as they are, so that a VMM neither parses nor has the
// names of calls in its memory. The caller decides when: from that moment on.
//
// The trap: a thread with a filter of its own makes it impossible to give all
// threads another one (SECCOMP_FILTER_FLAG_TSYNC), so that comes first.
package seccomp
