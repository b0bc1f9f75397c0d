package live

import "golang.org/x/sys/unix"

// guestNice is the scheduling priority of everything that a guest can keep busy.
const guestNice = 0

// The daemon and its shells run at a raised priority where the host allows it
// (package sandbox), so that guests that run already do not hold up the restore
// of their siblings: a hundred restored guests on two CPUs did, fivefold. A
// vCPU's thread never has that priority, and the rest of the process loses it
// with the restore, since from then on a guest can give it work.

// yieldThread takes the calling thread's raised priority from it: of another the filter of system
// calls leaves it alone. There is
// nothing to do about a failure, which means it has none.
func yieldThread() { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, guestNice) }

// yieldProcess takes it from all threads: the VMM is alone in its process group (client.Spawn of package vmctl).
func yieldProcess() { _ = unix.Setpriority(unix.PRIO_PGRP, 0, guestNice) }
