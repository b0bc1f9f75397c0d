package live

import (
	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/virtio"
	"github.com/forkd/forkd/internal/vm/virtio/balloon"
)

// attachBalloon puts the balloon into the last slot: what the guest reports as free goes back to the
// host, unless a capture retains the memory. Then it stays until it is used and freed again: the guest
// would otherwise have to wait for the capture's end with that memory out of its reach.
func (d *deviceSet) attachBalloon(mem *guestmem.Map) {
	d.attach(len(d.slots)-1, balloon.New(balloon.Config{Discard: func(gpa virtio.GPA, n int64) {
		if err := mem.Discard(gpa, n); err != nil {
			d.warn(err)
		}
	}}), mem)
}
