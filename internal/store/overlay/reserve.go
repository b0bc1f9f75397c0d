package overlay

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reserveStep is the number of bytes written between two checks of the free space. Each disk may exceed its
// limit, and use up the reserve, by this much.
const reserveStep = 1 << 20

// LimitReached is part of the error of a write beyond a disk's limit.
const LimitReached = "disk limit of"

// Reserve makes writes to new blocks fail with an error like ENOSPC, for which NoRoom holds, if fewer than this
// many bytes would be free on the overlay file's file system. 0 disables it. Call it before the disk is used.
func (d *Disk) Reserve(bytes int64) { d.reserve, d.unchecked = bytes, reserveStep }

// Limit makes writes fail with such an error if the overlay file uses this many bytes of its file system. 0
// disables it. Discarded data does not count. A discarded block is allocated and takes space again when it is
// written, so every write is checked. After a switch only the new overlay file counts. Call it before the disk is
// used.
func (d *Disk) Limit(bytes int64) { d.limit, d.unlimited = bytes, reserveStep }

// room returns an error if a write of n bytes to the blocks from first to end exceeds the limit or uses the
// reserve.
func (d *Disk) room(first, end, n int64) error {
	if err := d.withinLimit(n); err != nil || d.reserve == 0 {
		return err
	}
	if allocated, next := d.allocated.run(first, end); allocated && next >= end {
		return nil // the space is allocated already
	}
	if d.unchecked+n <= reserveStep {
		d.unchecked += n
		return nil
	}
	free, err := d.file.free()
	if err != nil {
		return nil //nolint:nilerr // the write itself tells whether there is room
	}
	if free-n < d.reserve {
		return fmt.Errorf("%w: %d MiB free including the reserve of %d MiB", unix.ENOSPC, free>>20, d.reserve>>20)
	}
	d.unchecked = n
	return nil
}

func (d *Disk) withinLimit(n int64) error {
	if d.limit == 0 {
		return nil
	}
	if d.unlimited+n <= reserveStep {
		d.unlimited += n
		return nil
	}
	used, err := d.file.used()
	if err != nil {
		return err
	}
	if used+n > d.limit {
		return fmt.Errorf("%w: its %s %d MiB is reached", unix.ENOSPC, LimitReached, d.limit>>20)
	}
	d.unlimited = n
	return nil
}
