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

// Buffers between the two halves of a flow, in bytes. All flows share the large one. A flow that
// waits for its far end to send uses a size in between.
const (
	chunkMax = 64 << 10
	chunkMin = 2 << 10
)

var chunks = sync.Pool{New: func() any { return new([chunkMax]byte) }}

// readWaiter is optionally implemented by a far half: Read does not block when WaitRead has
// returned nil. Then a buffer is taken only when there is data for it.
type readWaiter interface{ WaitRead() error }

// splice is a TCP flow with both halves connected.
type splice struct {
	ep     tcpip.Endpoint // the guest's half
	events *waiter.Queue  // of ep
	far    Stream

	gone   waiter.Entry
	over   chan struct{} // closed when ep has left the stack, or is broken
	once   sync.Once     // closes over
	broken atomic.Bool   // one half has been reset, and then the other
}

func newSplice(ep tcpip.Endpoint, events *waiter.Queue, far Stream) *splice {
	s := &splice{ep: ep, events: events, far: far, over: make(chan struct{})}
	s.gone = waiter.NewFunctionEntry(waiter.EventHUp|waiter.EventErr, func(waiter.EventMask) { s.look() })
	events.EventRegister(&s.gone)
	s.look() // events before the registration
	return s
}

// look checks whether the guest's half is over. The stack calls it with ep locked.
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

// run carries bytes until neither direction has any more.
func (s *splice) run() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.finish(s.toGuest())
	}()
	s.finish(s.toFar())
	<-done
}

// finish resets both halves if a direction ended with an error.
func (s *splice) finish(err error) {
	if err == nil {
		return
	}
	s.broken.Store(true)
	s.far.Abort()
	s.ep.Abort()
}

// errGone is returned if the guest's half has ended.
var errGone = errors.New("the guest's half of the flow is gone")

// toFar carries the guest's bytes until the guest is done.
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

// readOnce carries the available bytes, up to a chunk. It returns the stack's error and the far
// half's separately.
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

// toGuest carries the far end's bytes until the far end is done.
func (s *splice) toGuest() error {
	room, wake := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventHUp | waiter.EventErr)
	s.events.EventRegister(&room)
	defer s.events.EventUnregister(&room)
	size := chunkMin
	for {
		n, err := s.carry(size, wake)
		switch {
		case errors.Is(err, io.EOF):
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

// carry reads up to size bytes and passes them to the guest.
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

// lingerLook is the interval at which linger checks the guest's half.
const lingerLook = 250 * time.Millisecond

// linger waits until the guest has taken all bytes, and for the end of TIME_WAIT. Until then the
// flow counts. If the guest takes no bytes for limit, it is reset. A half in FIN_WAIT_2 has taken
// all, and its end was read: if the guest's FIN overtook other segments, gVisor forgets it and
// would wait for it again.
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
