// Package wipeonfork clears the memory of a clone that fork(2) would clear. A process marks such pages with
// madvise(2), MADV_WIPEONFORK: they hold random state, or a flag by which the process notices that it is a copy. After
// a fork of a VM every process of the guest is a copy, so all marked pages of all processes become zero.
//
// The kernel lists the marks in /proc/PID/smaps only, and walks through the page tables of the whole process for it. So
// Look remembers the marks before a snapshot. In the clone, Wipe reads that file only of processes whose regions have
// changed since. It writes to /proc/PID/mem, which needs root with CAP_SYS_PTRACE over all processes, and only to pages
// that exist. Look misses a mark that a process sets on a region that is older than Look, in the milliseconds until the
// snapshot. Libraries mark a region when they make it.
//
// A process runs on meanwhile. A region that it unmaps and replaces between the read and the write loses content.
// Programs do not unmap such regions while they use them.
package wipeonfork
