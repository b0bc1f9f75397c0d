package guestfork

import (
	"errors"
	"fmt"
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

// Limits of a guest's use of the daemon at agentproto.ForkPort.
const (
	// MaxCalls is the number of concurrent calls of a guest; its agent serves 64 callers. A guest
	// that may not fork and is not a child only gets refusals, for at most maxStrangerCalls
	// concurrent calls.
	MaxCalls         = 80
	maxStrangerCalls = 4
	// MaxResults is the number of results (forkwire.MaxResult) read concurrently: a child exits
	// once.
	MaxResults = 2
	// CallRate is the number of calls per second a guest may begin, after a burst of CallBurst.
	// Beyond it the connection is refused before any lock is taken, and its agent tries again.
	CallRate  = 50
	CallBurst = 2 * MaxCalls
	// ForkRate is the number of these calls per second that may request a fork, after a burst of
	// ForkBurst.
	ForkRate  = 5
	ForkBurst = 32
	// noticeRate is the number of notices per second, after a burst of noticeBurst. An agent sends two.
	noticeRate  = 2
	noticeBurst = 8
	// callTimeout bounds the reading of a request, as a default, and the writing of an answer.
	callTimeout = 30 * time.Second
	// refusalPause delays a refusal, so that repeated requests cost the guest more than the daemon.
	refusalPause = 20 * time.Millisecond
)

var errNotices = fmt.Errorf("more than %d notices a second", noticeRate)

var errRate = fmt.Errorf("more than %d calls a second", CallRate)

// line is a VM's connection to the daemon. It is made before the VM's process. The sandbox is
// looked up when the guest calls: a shell has no sandbox yet.
type line struct {
	proc    atomic.Pointer[client.Process]
	sb      atomic.Pointer[sandboxes.Sandbox] // sandbox found at the last call
	calls   *pace.Bucket
	forks   *pace.Bucket
	notices *pace.Bucket
	results chan struct{} // holds a value for each result being read
}

func newLine() *line {
	return &line{
		calls: pace.New(CallRate, CallBurst), forks: pace.New(ForkRate, ForkBurst),
		notices: pace.New(noticeRate, noticeBurst),
		results: make(chan struct{}, MaxResults),
	}
}

// reserveResult reserves space for a request's result, if it has one.
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

// Dialer returns the dialer of a new VM; started is called with its process.
func (f *Families) Dialer() (dial client.HostDialer, started func(*client.Process)) {
	l := newLine()
	return f.port(l), l.proc.Store
}

// port returns the dialer of a VM.
func (f *Families) port(l *line) client.HostDialer {
	return func(port uint32) (*os.File, error) {
		if port == agentproto.NoticePort {
			return f.notice(l)
		}
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
		conn, theirs, err := unixfd.Stream("guest call")
		if err != nil {
			leave()
			return nil, err
		}
		go func() { // counted by BeginCall
			defer leave()
			f.serve(b, l, conn)
		}()
		return theirs, nil
	}
}

// notice accepts a report that services have changed. The connection is all of it, and is closed at
// once.
func (f *Families) notice(l *line) (*os.File, error) {
	if !l.notices.Try(time.Now()) {
		return nil, errNotices
	}
	b := f.caller(l)
	if b == nil || f.cfg.Notice == nil {
		return nil, errors.New("this guest is no sandbox yet")
	}
	ours, theirs, err := unixfd.Pair(unix.SOCK_STREAM, "guest notice")
	if err != nil {
		return nil, err
	}
	ours.Close()
	f.cfg.Notice(b.ID())
	return theirs, nil
}

// admit finds the sandbox and counts the call. It refuses a clone that is not listed yet; the
// clone's agent tries again.
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

// caller returns the sandbox of the calling VM. It searches all sandboxes only the first time.
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
