// Package seccomp permanently denies system calls to a process, a VMM or forkd-net. It contains the filters and
// installs them. The allowed calls are data: one file per step in lists/, with a reason for each line. Package
// compile builds the programs beside them, which are embedded unchanged. So a VMM neither parses lists nor has
// the names of calls in its memory. The caller chooses the moment, and a filter applies from then on.
//
// Beware: once a thread has a filter of its own, a filter can no longer be installed in all threads
// (SECCOMP_FILTER_FLAG_TSYNC). So install that one first.
package seccomp
