package store

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/storeerr"
)

// freeBytes returns the space available to an unprivileged user.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Frsize, nil
}

// room returns an error if writing these bytes would use the reserve.
func (d *folder) room(bytes int64) error {
	free, err := d.free(d.dir)
	if err != nil {
		return err
	}
	if bytes > free-d.reserve {
		need := ""
		if bytes > 0 { // otherwise the size is not known yet
			need = fmt.Sprintf("%d MiB needed, ", mib(bytes))
		}
		return fmt.Errorf("%w: %s%d MiB free including the reserve of %d MiB", storeerr.ErrNoSpace, need,
			free>>20, mib(d.reserve))
	}
	return nil
}

// mib rounds up, so that a small size is not shown as 0.
func mib(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }
