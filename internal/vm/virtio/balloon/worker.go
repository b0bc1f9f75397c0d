package balloon

import "github.com/forkd/forkd/internal/vm/virtio"

// discardSlice is the number of bytes discarded between two checks for waiting callers: a
// millisecond's work.
const discardSlice = 8 << 20

// report discards the ranges of one report; virtio.Worker is the loop around it. A report has at
// most as many ranges as its queue, but each may be all of the memory. If a caller waits, a long
// report is put back and done again from its beginning, since the guest must not use any of it yet.
// The answer's length is 0, because no bytes were written: a driver may take a full length for
// pages of zeros.
func (d *Device) report(c *virtio.Chain, leaving func() bool) (written uint32, err error) {
	for _, r := range c.Ranges {
		for at, end := wholePages(r); at < end; {
			if leaving() {
				return 0, virtio.ErrLater
			}
			n := min(end-at, discardSlice)
			d.discard(at, int64(n))
			at += n
		}
	}
	return 0, nil
}
