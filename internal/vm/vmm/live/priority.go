package live

import "golang.org/x/sys/unix"

// guestNice is the scheduling priority of all threads a guest can keep busy.
const guestNice = 0

// The daemon and its shells run at a raised priority where the host allows it (package sandbox).
// Otherwise running guests would delay the restore of their siblings: a hundred restored guests on
// two CPUs did, fivefold. A vCPU's thread never has this priority. The rest of the process loses it
// at the restore, since a guest can give it work from then on.

// yieldThread drops the calling thread's raised priority. The system call filter does not allow it
// for other threads. A failure is ignored: it means the thread has no raised priority.
func yieldThread() { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, guestNice) }

// yieldProcess drops it for all threads: the VMM is alone in its process group (client.Spawn of
// package vmctl).
func yieldProcess() { _ = unix.Setpriority(unix.PRIO_PGRP, 0, guestNice) }
