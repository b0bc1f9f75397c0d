package overlay

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reserveStep is how much may be written between two looks at the room: so much of the
// reserve each disk may use up.
const reserveStep = 1 << 20

// Reserve has writes to new blocks end with an error like ENOSPC, for which NoRoom holds, when
// fewer than so many bytes would be left on the overlay file's file system; 0: never. Call it
// before the disk is used.
func (d *Disk) Reserve(bytes int64) { d.reserve, d.unchecked = bytes, reserveStep }

// room says whether a write of n bytes from first to end, in blocks, leaves the reserve alone.
func (d *Disk) room(first, end, n int64) error {
	if d.reserve == 0 {
		return nil
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
