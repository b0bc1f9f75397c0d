package forkcall

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/guest/agent/generation"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

// Socket is the path on which programs in the guest call.
const Socket = "/run/forkd/fork.sock"

const (
	// maxCalls limits the callers served at the same time.
	maxCalls = 64
	// requestTimeout limits the time to read one request. A caller sends it immediately.
	requestTimeout = 30 * time.Second
)

// Config configures a Server.
type Config struct {
	Guest *generation.Guest // detects that the guest was cloned
	// Dial connects to the host's port for calls.
	Dial func(ctx context.Context) (net.Conn, error)
	// Patience is how long calls are retried if the host does not answer. 0 means a minute.
	Patience time.Duration
	Log      func(format string, args ...any) // receives errors of accepting calls
}

// Server answers calls.
type Server struct {
	cfg Config

	mu    sync.Mutex
	calls map[*call]struct{}
}

// New returns a server. Call Serve with a listener.
func New(cfg Config) *Server {
	if cfg.Patience == 0 {
		cfg.Patience = time.Minute
	}
	return &Server{cfg: cfg, calls: map[*call]struct{}{}}
}

// Busy reports whether a program in the guest waits for its answer.
func (s *Server) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls) > 0
}

// Listen opens the socket for every user: the guest is the security boundary, not its users.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make folder of fork socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove old fork socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on fork socket: %w", err)
	}
	if err := os.Chmod(path, 0o666); err != nil { // #nosec G302 -- every user of the guest may ask for a fork
		l.Close()
		return nil, fmt.Errorf("open fork socket to all users: %w", err)
	}
	return l, nil
}

// Serve answers callers until ctx ends, and waits for calls in progress.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	slots := make(chan struct{}, maxCalls)
	for {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept fork calls: %w", err)
		case err != nil:
			s.cfg.Log("accept fork calls: %v", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		select {
		case slots <- struct{}{}:
			serving.Go(func() { defer func() { <-slots }(); s.serve(ctx, c) })
		default:
			answer(c, forkwire.Answer{Error: forkwire.Errorf(forkwire.Busy, "%d calls are under way already", maxCalls)}, nil)
			c.Close()
		}
	}
}

// answer sends an answer. The caller may be gone; its error is usually ignored.
func answer(c net.Conn, a forkwire.Answer, result []byte) error {
	_ = c.SetWriteDeadline(time.Now().Add(requestTimeout))
	return forkwire.WriteAnswer(c, a, result)
}

// serve handles one caller from its request to its answer.
func (s *Server) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(requestTimeout))
	r := forkwire.NewReader(conn)
	req, result, err := forkwire.ReadRequest(r)
	if err == nil {
		err = req.Check()
	}
	if err != nil {
		_ = answer(conn, forkwire.Answer{Error: forkwire.Errorf(forkwire.Invalid, "%v", err)}, nil)
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	req.Again = false
	if req.Op == forkwire.OpFork {
		req.Token = newToken()
	}
	c := s.begin(ctx, req, result)
	defer s.end(c)
	listening := c.listen(conn, r)
	a, result, confirm := c.carry()
	if a.Error != nil && ctx.Err() != nil {
		a.Error = forkwire.Errorf(forkwire.Unavailable, "the agent is ending")
	}
	if answer(conn, a, result) == nil && confirm != nil {
		confirm(c.confirmed())
	} else if confirm != nil {
		confirm(false)
	}
	conn.Close() // ends the goroutine of listen
	<-listening
}

// listen reads from the caller after its request: either the confirmation that it has a child's
// result, or the end of the connection, which means that the caller has left.
func (c *call) listen(conn net.Conn, r *bufio.Reader) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if b, err := r.ReadByte(); err == nil && b == forkwire.Collected {
			close(c.collected)
			return
		}
		c.cancel(errCallerLeft)
	}()
	return done
}

// confirmed waits for the caller's confirmation that it has received the result.
func (c *call) confirmed() bool {
	timer := time.NewTimer(requestTimeout)
	defer timer.Stop()
	select {
	case <-c.collected:
		return true
	case <-c.ctx.Done():
	case <-timer.C:
	}
	return false
}

func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: it calls getrandom
	return hex.EncodeToString(b[:])
}
