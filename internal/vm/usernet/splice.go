package usernet

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Buffers between the two halves of a flow, in bytes. The large one is shared
// by all flows, one that waits for its far end to send has one between the two.
const (
	chunkMax = 64 << 10
	chunkMin = 2 << 10
)

var chunks = sync.Pool{New: func() any { return new([chunkMax]byte) }}

// readWaiter is what a far half may also have: Read does not block when WaitRead
// has returned nil. Then no buffer is taken before there is something for it.
type readWaiter interface{ WaitRead() error }

// splice is a TCP flow with both halves connected.
type splice struct {
	ep     tcpip.Endpoint // the guest's half
	events *waiter.Queue  // of ep
	far    Stream

	gone   waiter.Entry
	over   chan struct{} // closed when ep has left the stack, or is broken
	once   sync.Once     // closes over
	broken atomic.Bool   // a half has been reset, and so has the other
}

func newSplice(ep tcpip.Endpoint, events *waiter.Queue, far Stream) *splice {
	s := &splice{ep: ep, events: events, far: far, over: make(chan struct{})}
	s.gone = waiter.NewFunctionEntry(waiter.EventHUp|waiter.EventErr, func(waiter.EventMask) { s.look() })
	events.EventRegister(&s.gone)
	s.look() // what came before
	return s
}

// look sees whether the guest's half is over. The stack calls it with ep locked.
func (s *splice) look() {
	switch tcp.EndpointState(s.ep.State()) {
	case tcp.StateError:
		s.broken.Store(true)
		s.far.Abort()
	case tcp.StateClose:
	default:
		return
	}
	s.once.Do(func() { close(s.over) })
}

// run carries bytes until neither way has any more.
func (s *splice) run() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.finish(s.toGuest())
	}()
	s.finish(s.toFar())
	<-done
}

// finish resets both halves if a way ended with an error.
func (s *splice) finish(err error) {
	if err == nil {
		return
	}
	s.broken.Store(true)
	s.far.Abort()
	s.ep.Abort()
}

// errGone: the guest's half is no more.
var errGone = errors.New("the guest's half of the flow is gone")

// toFar carries what the guest sends, until it has said that it is done.
func (s *splice) toFar() error {
	ready, wake := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventHUp | waiter.EventErr)
	s.events.EventRegister(&ready)
	defer s.events.EventUnregister(&ready)
	for {
		end, err := s.readOnce()
		switch end.(type) {
		case nil:
		case *tcpip.ErrWouldBlock:
			<-wake
			continue
		case *tcpip.ErrClosedForReceive:
			return s.far.CloseWrite()
		default:
			return errGone
		}
		if err != nil {
			return err
		}
	}
}

// readOnce carries what there is, up to a chunk. The stack's error and the far
// half's are apart.
func (s *splice) readOnce() (guest tcpip.Error, far error) {
	if s.ep.Readiness(waiter.ReadableEvents) == 0 {
		return &tcpip.ErrWouldBlock{}, nil
	}
	buf := chunks.Get().(*[chunkMax]byte)
	defer chunks.Put(buf)
	into := tcpip.SliceWriter(buf[:])
	r, err := s.ep.Read(&into, tcpip.ReadOptions{})
	if err != nil {
		return err, nil
	}
	_, far = s.far.Write(buf[:r.Count])
	return nil, far
}

// toGuest carries what the far end sends, until it has said that it is done.
func (s *splice) toGuest() error {
	room, wake := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventHUp | waiter.EventErr)
	s.events.EventRegister(&room)
	defer s.events.EventUnregister(&room)
	size := chunkMin
	for {
		n, err := s.carry(size, wake)
		switch {
		case err == io.EOF:
			s.ep.Shutdown(tcpip.ShutdownWrite)
			return nil
		case err != nil:
			return err
		case n == size:
			size = min(2*size, chunkMax)
		case n < size/4:
			size = max(size/2, chunkMin)
		}
	}
}

// carry reads up to size bytes and gives them to the guest.
func (s *splice) carry(size int, wake <-chan struct{}) (int, error) {
	if w, ok := s.far.(readWaiter); ok {
		if err := w.WaitRead(); err != nil {
			return 0, err
		}
		size = chunkMax
	}
	buf := s.chunk(size)
	if size == chunkMax {
		defer chunks.Put((*[chunkMax]byte)(buf))
	}
	n, err := s.far.Read(buf)
	if n > 0 {
		if err := s.write(buf[:n], wake); err != nil {
			return n, err
		}
	}
	return n, err
}

func (s *splice) chunk(size int) []byte {
	if size == chunkMax {
		return chunks.Get().(*[chunkMax]byte)[:]
	}
	return make([]byte, size)
}

func (s *splice) write(b []byte, wake <-chan struct{}) error {
	r := bytes.NewReader(b)
	for r.Len() > 0 {
		switch _, err := s.ep.Write(r, tcpip.WriteOptions{}); err.(type) {
		case nil:
		case *tcpip.ErrWouldBlock:
			<-wake
		default:
			return errGone
		}
	}
	return nil
}

// lingerLook is how often linger looks at the guest's half.
const lingerLook = 250 * time.Millisecond

// linger waits until the guest has taken all, and for the end of TIME_WAIT: till
// then the flow counts. A guest that takes nothing for so long is reset. One in
// FIN_WAIT_2 has taken all, and its end was read: when the guest's FIN overtook
// other segments, gVisor forgets it and would wait for it again.
func (s *splice) linger(limit time.Duration) {
	s.ep.Close()
	t := time.NewTicker(lingerLook)
	defer t.Stop()
	for range limit / lingerLook {
		select {
		case <-s.over:
			return
		case <-t.C:
		}
		if tcp.EndpointState(s.ep.State()) == tcp.StateFinWait2 {
			break
		}
	}
	s.ep.Abort()
}

func (s *splice) end() {
	s.ep.Close()
	s.events.EventUnregister(&s.gone)
	s.far.Close()
}
