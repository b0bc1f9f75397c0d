package live

import (
	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/virtio"
	"github.com/forkd/forkd/internal/vm/virtio/balloon"
)

// attachBalloon puts the balloon into the last slot before those for volumes. Memory reported free by the guest goes back to
// the host, unless a capture retains it. Retained memory stays until the guest uses and frees it
// again: otherwise the guest would have to wait for the capture's end without this memory.
func (d *deviceSet) attachBalloon(mem *guestmem.Map) {
	d.attach(len(d.slots)-d.spare-1, balloon.New(balloon.Config{Discard: func(gpa virtio.GPA, n int64) {
		if err := mem.Discard(gpa, n); err != nil {
			d.warn(err)
		}
	}}), mem)
}
