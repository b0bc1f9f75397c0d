package overlay

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reserveStep is how much may be written between two looks at the room: so much of the
// reserve, and beyond its limit, each disk may use up.
const reserveStep = 1 << 20

// LimitReached is in the error of a write beyond a disk's limit.
const LimitReached = "disk limit of"

// Reserve has writes to new blocks end with an error like ENOSPC, for which NoRoom holds, when
// fewer than so many bytes would be left on the overlay file's file system; 0: never. Call it
// before the disk is used.
func (d *Disk) Reserve(bytes int64) { d.reserve, d.unchecked = bytes, reserveStep }

// Limit has writes end with such an error, too, when the overlay file takes so many bytes of its
// file system; 0: never. What the guest discards counts no more; a block that was discarded is
// allocated and takes room again when it is written to, so any write is counted. After a switch the
// new overlay file counts alone. Call it before the disk is used.
func (d *Disk) Limit(bytes int64) { d.limit, d.unlimited = bytes, reserveStep }

// room says whether a write of n bytes from first to end, in blocks, keeps to the limit and leaves
// the reserve alone.
func (d *Disk) room(first, end, n int64) error {
	if err := d.withinLimit(n); err != nil || d.reserve == 0 {
		return err
	}
	if allocated, next := d.allocated.run(first, end); allocated && next >= end {
		return nil // it has its room already
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
		return fmt.Errorf("%w: %d MiB are free, of which %d MiB stay in reserve", unix.ENOSPC, free>>20, d.reserve>>20)
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
