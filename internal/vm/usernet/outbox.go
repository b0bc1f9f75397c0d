package usernet

import (
	"sync"

	virtionet "github.com/forkd/forkd/internal/vm/virtio/net"
)

// queuedFrames is the maximum number of frames waiting for room, of any size.
const queuedFrames = 2048

// outbox sends frames to the guest in order. Frames without room wait, up to a limit. Beyond it
// frames are dropped, and TCP retransmits them.
type outbox struct {
	guest virtionet.Guest
	limit int // maximum of waiting bytes
	count *counters

	mu      sync.Mutex // held over Guest.Receive, to keep the order
	waiting []waitingFrame
	bytes   int
	closed  bool
}

type waitingFrame struct {
	header virtionet.Header
	frame  []byte
}

// send passes a frame to the guest, or keeps a copy of it until there is room.
func (o *outbox) send(h virtionet.Header, frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	if len(o.waiting) == 0 && o.guest.Receive(h, frame) {
		o.gaveLocked(frame)
		return
	}
	if o.bytes+len(frame) > o.limit || len(o.waiting) >= queuedFrames {
		o.count.dropped.Add(1)
		return
	}
	o.waiting = append(o.waiting, waitingFrame{h, append([]byte(nil), frame...)})
	o.bytes += len(frame)
}

func (o *outbox) gaveLocked(frame []byte) {
	o.count.framesOut.Add(1)
	o.count.bytesOut.Add(uint64(len(frame)))
}

// drain passes waiting frames to the guest while there is room.
func (o *outbox) drain() {
	o.mu.Lock()
	defer o.mu.Unlock()
	done := 0
	for _, w := range o.waiting {
		if o.closed || !o.guest.Receive(w.header, w.frame) {
			break
		}
		o.gaveLocked(w.frame)
		o.bytes -= len(w.frame)
		done++
	}
	if o.waiting = o.waiting[:copy(o.waiting, o.waiting[done:])]; len(o.waiting) == 0 {
		o.waiting = nil // free the memory of a burst
		return
	}
	clear(o.waiting[len(o.waiting):cap(o.waiting)])
}

// close drops the waiting frames. The guest receives no frame after it.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.waiting, o.bytes = true, nil, 0
}
