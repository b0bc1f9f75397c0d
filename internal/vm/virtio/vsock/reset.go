package vsock

import (
	"encoding/binary"

	"github.com/forkd/forkd/internal/vm/virtio"
)

// resetPhase is how far a restored device is with telling the guest.
type resetPhase uint8

const (
	resetDone    resetPhase = iota
	resetWanted             // the event is still to be sent
	resetPending            // sent; the guest has not given the buffer back yet
)

const (
	eventSize           = 4
	eventTransportReset = 0 // virtio 1.2 §5.10.6.7
)

// transportReset is the event by which a restored guest learns that its connections are
// gone. The guest gives the event's buffer back after it has dropped them.
type transportReset struct {
	phase     resetPhase
	published uint16 // by the event queue, when the event was sent
}

// step sends the event when there is room for it, and reports, once, that the guest has
// dropped its connections.
func (r *transportReset) step(event *virtio.Queue) (dropped bool) {
	switch r.phase {
	case resetWanted:
		if event.Size() == 0 { // a driver without events drops nothing either
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
	// Asked before the event is visible: the buffer comes back after that.
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
