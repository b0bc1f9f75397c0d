package bench

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/diskbench"
	"github.com/forkd/forkd/internal/sandbox"
)

// Disk measures the file system that the sandboxes' disks lie in.
func (l Lab) Disk(mib, randomOps int) (diskbench.Figures, error) {
	if mib < 1 || mib > diskbench.MaxMiB || randomOps < 1 || randomOps > diskbench.MaxRandomOps {
		return diskbench.Figures{}, fmt.Errorf("%w: a file of %d MiB and %d random accesses", sandbox.ErrInvalid, mib, randomOps)
	}
	f, err := diskbench.Run(diskbench.Config{Dir: l.StoreDir, MiB: mib, RandomOps: randomOps})
	if errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("%w: %w", sandbox.ErrNoSpace, err)
	}
	return f, err
}
