package guestfork

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
	"github.com/forkd/forkd/internal/leaf/pace"
	"github.com/forkd/forkd/internal/sys/unixfd"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// Limits of what one guest can have of the daemon at agentproto.ForkPort.
const (
	// MaxCalls is how many calls of a guest may be under way: its agent serves 64 callers.
	// Whoever may not fork and is nobody's child is only told so, at most maxStrangerCalls at once.
	MaxCalls         = 80
	maxStrangerCalls = 4
	// MaxResults is how many results (forkwire.MaxResult) are read at once: a child exits once.
	MaxResults = 2
	// CallRate is how many calls a second a guest may begin, after CallBurst at once. Beyond it
	// the connection is refused before anything is locked, and its agent tries again.
	CallRate  = 50
	CallBurst = 2 * MaxCalls
	// ForkRate is how many of those a second may ask for a fork, after ForkBurst at once.
	ForkRate  = 5
	ForkBurst = 32
	// callTimeout bounds the reading of a request and the writing of an answer; of the former
	// it is the default.
	callTimeout = 30 * time.Second
	// refusalPause is how long a refusal takes, so that asking again and again
	// costs the guest more than the daemon.
	refusalPause = 20 * time.Millisecond
)

var errRate = fmt.Errorf("more than %d calls a second", CallRate)

// line is a VM's way to the daemon. It is made before its process is. Who
// the guest is turns out when it calls: a shell is nobody yet.
type line struct {
	proc    atomic.Pointer[client.Process]
	sb      atomic.Pointer[sandboxes.Sandbox] // who it was the last time
	calls   *pace.Bucket
	forks   *pace.Bucket
	results chan struct{} // holds a value for each result that is read
}

func newLine() *line {
	return &line{
		calls: pace.New(CallRate, CallBurst), forks: pace.New(ForkRate, ForkBurst),
		results: make(chan struct{}, MaxResults),
	}
}

// reserveResult takes room for a request's result, if it has one.
func (l *line) reserveResult(req forkwire.Request) (leave func(), _ *forkwire.Error) {
	if req.Bytes == 0 {
		return func() {}, nil
	}
	select {
	case l.results <- struct{}{}:
		return func() { <-l.results }, nil
	default:
		return nil, forkwire.Errorf(forkwire.Busy, "%d exits of this sandbox are under way already", MaxResults)
	}
}

// Dialer is the dialer of a VM that is going to be; started is called with its process.
func (f *Families) Dialer() (dial client.HostDialer, started func(*client.Process)) {
	l := newLine()
	return f.port(l), l.proc.Store
}

// port is the dialer of a VM.
func (f *Families) port(l *line) client.HostDialer {
	return func(port uint32) (*os.File, error) {
		if port != agentproto.ForkPort {
			return nil, fmt.Errorf("host port %d is closed", port)
		}
		if !l.calls.Try(time.Now()) {
			return nil, errRate
		}
		b, leave, err := f.admit(l)
		if err != nil {
			return nil, err
		}
		conn, theirs, err := callPair()
		if err != nil {
			leave()
			return nil, err
		}
		go func() { // BeginCall has counted it
			defer leave()
			f.serve(b, l, conn)
		}()
		return theirs, nil
	}
}

// callPair is a connection, and its other end for the guest.
func callPair() (conn net.Conn, theirs *os.File, err error) {
	ours, theirs, err := unixfd.Pair(unix.SOCK_STREAM, "guest call")
	if err != nil {
		return nil, nil, err
	}
	defer ours.Close()
	if conn, err = net.FileConn(ours); err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn, theirs, nil
}

// admit finds the sandbox and counts the call. Before a clone is listed it
// is refused, and its agent tries again.
func (f *Families) admit(l *line) (_ *sandboxes.Sandbox, leave func(), _ error) {
	b := f.caller(l)
	if b == nil {
		return nil, nil, errors.New("this guest is no sandbox yet")
	}
	most, kin := maxStrangerCalls, b.Info().Kin
	if kin.MayFork || kin.Parent != "" {
		most = MaxCalls
	}
	done, err := f.cfg.BeginCall()
	if err != nil {
		return nil, nil, err
	}
	if err := f.count(b.ID(), most); err != nil {
		done()
		return nil, nil, err
	}
	return b, func() {
		f.uncount(b.ID())
		done()
	}, nil
}

func (f *Families) count(id string, most int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls[id] >= most {
		return fmt.Errorf("%d calls are under way", most)
	}
	f.calls[id]++
	return nil
}

func (f *Families) uncount(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls[id]--; f.calls[id] == 0 {
		delete(f.calls, id)
	}
}

// caller is the sandbox whose VM calls; it looks through all of them but the first time only.
func (f *Families) caller(l *line) *sandboxes.Sandbox {
	proc := l.proc.Load()
	if b := l.sb.Load(); b != nil && b.Is(proc) {
		return b
	}
	b := f.cfg.Sandboxes.ByProcess(proc)
	if b != nil {
		l.sb.Store(b)
	}
	return b
}
