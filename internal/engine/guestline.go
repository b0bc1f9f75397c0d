package engine

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/agentproto"
	"github.com/forkd/forkd/internal/agentproto/forkwire"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/pace"
	"github.com/forkd/forkd/internal/sandbox"
	"github.com/forkd/forkd/internal/vmctl/client"
)

// What one guest can have of the daemon at agentproto.ForkPort. Its agent serves
// 64 callers; whoever may not fork and is nobody's child is only told so.
const (
	maxGuestCalls    = 80
	maxStrangerCalls = 4
	// maxGuestResults is how many results (forkwire.MaxResult) are read at once: a child exits once.
	maxGuestResults = 2
	// guestCallRate is how many calls a second a guest may begin, after
	// guestCallBurst at once; and of those, how many may ask for a fork. Beyond it
	// the connection is refused before anything is locked, and its agent tries again.
	guestCallRate  = 50
	guestCallBurst = 2 * maxGuestCalls
	guestForkRate  = 5
	guestForkBurst = 32
	// guestTimeout bounds the reading of a request and the writing of an answer.
	guestTimeout = 30 * time.Second
	// refusalPause is how long a refusal takes, so that asking again and again
	// costs the guest more than the daemon.
	refusalPause = 20 * time.Millisecond
)

var errGuestRate = fmt.Errorf("more than %d calls a second", guestCallRate)

// guestLine is a VM's way to the daemon. It is made before its process is. Who
// the guest is turns out when it calls: a shell is nobody yet.
type guestLine struct {
	proc     atomic.Pointer[client.Process]
	sb       atomic.Pointer[sandboxes.Sandbox] // who it was the last time
	calls    *pace.Bucket
	forks    *pace.Bucket
	results  chan struct{} // holds a value for each result that is read
	patience time.Duration // guestTimeout but in tests
}

func newGuestLine() *guestLine {
	return &guestLine{
		calls: pace.New(guestCallRate, guestCallBurst), forks: pace.New(guestForkRate, guestForkBurst),
		results: make(chan struct{}, maxGuestResults), patience: guestTimeout,
	}
}

// reserveResult takes room for a request's result, if it has one.
func (l *guestLine) reserveResult(req forkwire.Request) (leave func(), _ *forkwire.Error) {
	if req.Bytes == 0 {
		return func() {}, nil
	}
	select {
	case l.results <- struct{}{}:
		return func() { <-l.results }, nil
	default:
		return nil, forkwire.Errorf(forkwire.Busy, "%d exits of this sandbox are under way already", maxGuestResults)
	}
}

// newGuestDialer is the dialer of a VM that is going to be.
func (e *Engine) newGuestDialer() (dial client.HostDialer, started func(*client.Process)) {
	line := newGuestLine()
	return e.guestPort(line), line.proc.Store
}

// guestPort is the dialer of a VM.
func (e *Engine) guestPort(line *guestLine) client.HostDialer {
	return func(port uint32) (*os.File, error) {
		if port != agentproto.ForkPort {
			return nil, fmt.Errorf("host port %d is closed", port)
		}
		if !line.calls.Try(time.Now()) {
			return nil, errGuestRate
		}
		b, leave, err := e.admitCall(line)
		if err != nil {
			return nil, err
		}
		conn, theirs, err := callPair()
		if err != nil {
			leave()
			return nil, err
		}
		go func() { // admitCall has counted it among the workers
			defer leave()
			e.serveCall(b, line, conn)
		}()
		return theirs, nil
	}
}

// callPair is a connection, and its other end for the guest.
func callPair() (conn net.Conn, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	ours := os.NewFile(uintptr(pair[0]), "guest call")
	conn, err = net.FileConn(ours)
	ours.Close()
	if err != nil {
		unix.Close(pair[1])
		return nil, nil, err
	}
	return conn, os.NewFile(uintptr(pair[1]), "guest call"), nil
}

// admitCall finds the sandbox and counts the call. Before a clone is listed it
// is refused, and its agent tries again.
func (e *Engine) admitCall(line *guestLine) (_ *sandboxes.Sandbox, leave func(), _ error) {
	b := e.caller(line)
	if b == nil {
		return nil, nil, errors.New("this guest is no sandbox yet")
	}
	most, kin := maxStrangerCalls, b.Info().Kin
	if kin.MayFork || kin.Parent != "" {
		most = maxGuestCalls
	}
	id := b.ID()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return nil, nil, sandbox.ErrClosing
	}
	if e.guests.calls[id] >= most {
		return nil, nil, fmt.Errorf("%d calls are under way", most)
	}
	e.guests.calls[id]++
	e.workers.Add(1) // not after closing is set, under mu: Close waits later
	return b, func() {
		e.mu.Lock()
		if e.guests.calls[id]--; e.guests.calls[id] == 0 {
			delete(e.guests.calls, id)
		}
		e.mu.Unlock()
		e.workers.Done()
	}, nil
}

// caller is the sandbox whose VM calls; it looks through all of them but the first time only.
func (e *Engine) caller(line *guestLine) *sandboxes.Sandbox {
	proc := line.proc.Load()
	if b := line.sb.Load(); b != nil && b.Is(proc) {
		return b
	}
	b := e.sandboxes.ByProcess(proc)
	if b != nil {
		line.sb.Store(b)
	}
	return b
}
