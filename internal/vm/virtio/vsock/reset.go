package vsock

import (
	"encoding/binary"

	"github.com/forkd/forkd/internal/vm/virtio"
)

// resetPhase is the progress of a restored device's transport reset.
type resetPhase uint8

const (
	resetDone    resetPhase = iota
	resetWanted             // the event is still to be sent
	resetPending            // sent; the guest has not returned the buffer yet
)

const (
	eventSize           = 4
	eventTransportReset = 0 // virtio 1.2 §5.10.6.7
)

// transportReset is the event by which a restored guest learns of the end of its connections. The
// guest returns the event's buffer after it has dropped them.
type transportReset struct {
	phase     resetPhase
	published uint16 // value of the event queue when the event was sent
}

// step sends the event when there is room for it. It returns true once, when the guest has dropped
// its connections.
func (r *transportReset) step(event *virtio.Queue) (dropped bool) {
	switch r.phase {
	case resetWanted:
		if event.Size() == 0 { // a driver without events drops no connections
			r.phase = resetDone
			return false
		}
		r.send(event)
	case resetPending:
		if event.Published() != r.published {
			r.phase = resetDone
			return true
		}
	}
	return false
}

func (r *transportReset) send(event *virtio.Queue) {
	// Read before the event is visible: the buffer comes back later.
	r.published = event.NotifyNext()
	var c virtio.Chain
	if !event.Pop(&c) {
		if !event.EnableKicks() || !event.Pop(&c) {
			return
		}
		r.published = event.NotifyNext()
	}
	if len(c.Readable) > 0 || c.Writable.Len() < eventSize {
		event.Fail(errEventBuffer)
		return
	}
	var e [eventSize]byte
	binary.LittleEndian.PutUint32(e[:], eventTransportReset)
	c.Writable.CopyIn(0, e[:])
	event.Push(c.Head, eventSize)
	event.Notify()
	r.phase = resetPending
}
