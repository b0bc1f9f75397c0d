package sandbox

// VMMThreads is the number of a VMM's threads besides its vCPUs: threads of the Go runtime and of devices. It is
// higher than the counts observed.
const VMMThreads = 12

// Committed is the allocated part of a tree's budget.
type Committed struct {
	TreeUsage
	// Forks counts the forks in progress. Each one turns its source's written data into a layer.
	Forks int
	// LayersMiB is the size of the layers left by earlier forks.
	LayersMiB int
}

// Room returns an ErrQuota if n children of so many vCPUs exceed the tree's budget.
func (l Limits) Room(now Committed, n, vcpus int) error {
	b, each := l.Tree, vcpus+VMMThreads
	if sum := (now.Size + n) * each; b.PIDs > 0 && sum > b.PIDs {
		return Errorf(ErrQuota, "",
			"%d more would need %d threads, including %d existing sandboxes, the limit of the tree is %d",
			n, sum, now.Size, b.PIDs)
	}
	// Assume that all disks become full. Each fork in progress, including this one, adds one layer.
	if sum := (now.Size+n+now.Forks+1)*l.DiskMiB + now.LayersMiB; b.DiskMiB > 0 && sum > b.DiskMiB {
		return Errorf(ErrQuota, "",
			"%d more of %d MiB of disk could make the tree fill %d MiB, %d of them filled by forks so far, and it may fill %d",
			n, l.DiskMiB, sum, now.LayersMiB, b.DiskMiB)
	}
	return nil
}
