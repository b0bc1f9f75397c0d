package sandbox

import "github.com/forkd/forkd/internal/guest/agentproto/forkwire"

// VMMThreads are what a VMM has beside a thread for each vCPU, on the safe side of what was counted:
// Go's and the devices'.
const VMMThreads = 12

// Committed is what of a tree's budget is given out.
type Committed struct {
	Census
	// Forks are under way: each leaves what its source had written as a layer.
	Forks int
	// LayersMiB are those that earlier forks have left.
	LayersMiB int
}

// Room says whether a sandbox may make n children of so many vCPUs, within its tree's budget.
func (l Limits) Room(now Committed, n, vcpus int) error {
	b, each := l.Tree, vcpus+VMMThreads
	if sum := (now.Size + n) * each; b.PIDs > 0 && sum > b.PIDs {
		return forkwire.Errorf(forkwire.Limit,
			"%d more would need %d threads, with those of the %d that there are, and this tree may have %d",
			n, sum, now.Size, b.PIDs)
	}
	// All disks full, and one more layer for each fork that is under way, this one included.
	if sum := (now.Size+n+now.Forks+1)*l.DiskMiB + now.LayersMiB; b.DiskMiB > 0 && sum > b.DiskMiB {
		return forkwire.Errorf(forkwire.Limit,
			"%d more of %d MiB of disk could make the tree fill %d MiB, %d of them filled by forks so far, and it may fill %d",
			n, l.DiskMiB, sum, now.LayersMiB, b.DiskMiB)
	}
	return nil
}
