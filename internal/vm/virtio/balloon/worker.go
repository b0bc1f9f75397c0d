package balloon

import "github.com/forkd/forkd/internal/vm/virtio"

// discardSlice is how much is given back without a look at who waits, in bytes: a millisecond's work.
const discardSlice = 8 << 20

// report gives back what one report names; virtio.Worker is the loop around it. A report has as many
// ranges as its queue at most, but each may be all of the memory: a long one is put back when
// somebody waits, and done again from its beginning, since the guest must not use any of it yet.
// Nothing was written, and the answer says so: a driver may take a full length for pages of zeros.
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
