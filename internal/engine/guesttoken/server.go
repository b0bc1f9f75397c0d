// Package guesttoken gives guests identity tokens about their own sandboxes. A guest asks on the
// host's port agentproto.TokenPort. The VM's own line to the daemon identifies it, so nothing in the
// guest's memory can name another sandbox, and a clone gets tokens about itself only. The package
// checks the sandbox's right and the rates; an issuer signs. Only package engine uses it. All input
// is hostile: every read has a limit and a deadline.
package guesttoken

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/tokenwire"
	"github.com/forkd/forkd/internal/leaf/pace"
	"github.com/forkd/forkd/internal/sys/unixfd"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// Limits of one VM, and of one tenant.
const (
	// TokenRate is the number of tokens per second, after a burst of TokenBurst. Beyond it a request
	// is answered with an error.
	TokenRate  = 1
	TokenBurst = 20
	// callRate is the number of connections per second, after a burst of callBurst. Beyond it a
	// connection is refused before any lock is taken.
	callRate  = 10
	callBurst = 40
	// tenantRate is the number of tokens per second of all sandboxes of a tenant, after a burst of
	// tenantBurst: each costs the daemon about a millisecond.
	tenantRate  = 20
	tenantBurst = 200
	// maxCalls is the number of open connections.
	maxCalls = 4
	// callTimeout bounds a whole call, whatever the guest sends.
	callTimeout = 10 * time.Second
)

// Config configures a Server. All fields except Issuer and Now are required.
type Config struct {
	Issuer    sandbox.IdentityIssuer // signs tokens; if nil, every request is refused
	Sandboxes *sandboxes.Table       // finds the sandbox of a VM
	// BeginCall admits a call of a guest while the daemon runs.
	BeginCall func() (done func(), _ error)
	// Closing ends when the daemon begins to close. Calls are then abandoned.
	Closing context.Context
	Log     *slog.Logger
	Now     func() time.Time // for the rates; default time.Now
}

// Server answers requests for tokens. Its methods are safe for concurrent use.
type Server struct {
	cfg Config

	mu      sync.Mutex
	tenants map[string]*pace.Bucket // by name; the operator makes tenants
}

// New returns a server.
func New(c Config) *Server {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Server{cfg: c, tenants: map[string]*pace.Bucket{}}
}

// line is a VM's connection to the daemon. The sandbox is looked up for each call: a shell has no
// sandbox yet, and a sandbox may get another VM.
type line struct {
	proc   atomic.Pointer[client.Process]
	calls  *pace.Bucket
	tokens *pace.Bucket
	open   chan struct{} // holds a value for each open connection
}

// Over returns a dialer for a new VM which serves the port for tokens and leaves other ports to
// dial. started is called with the VM's process.
func (s *Server) Over(dial client.HostDialer, started func(*client.Process),
) (client.HostDialer, func(*client.Process)) {
	l := &line{calls: pace.New(callRate, callBurst), tokens: pace.New(TokenRate, TokenBurst),
		open: make(chan struct{}, maxCalls)}
	return func(port uint32) (*os.File, error) {
			if port == agentproto.TokenPort {
				return s.dial(l)
			}
			return dial(port)
		}, func(p *client.Process) {
			l.proc.Store(p)
			started(p)
		}
}

// dial accepts one connection. It returns the guest's end.
func (s *Server) dial(l *line) (*os.File, error) {
	if !l.calls.Try(s.cfg.Now()) {
		return nil, fmt.Errorf("more than %d requests for tokens a second", callRate)
	}
	if s.cfg.Sandboxes.ByProcess(l.proc.Load()) == nil {
		return nil, errors.New("this guest is no sandbox yet") // its agent tries again
	}
	select {
	case l.open <- struct{}{}:
	default:
		return nil, fmt.Errorf("%d requests for tokens are under way", maxCalls)
	}
	done, err := s.cfg.BeginCall()
	if err != nil {
		<-l.open
		return nil, err
	}
	conn, theirs, err := unixfd.Stream("guest token")
	if err != nil {
		done()
		<-l.open
		return nil, err
	}
	go func() { // counted by BeginCall
		defer done()
		defer func() { <-l.open }()
		s.serve(l, conn)
	}()
	return theirs, nil
}

// serve answers one request.
func (s *Server) serve(l *line, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(s.cfg.Closing, func() { conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(callTimeout))
	req, err := tokenwire.ReadRequest(conn)
	if err != nil {
		_ = tokenwire.WriteAnswer(conn, tokenwire.Answer{Error: tokenwire.Errorf(tokenwire.Invalid, "%v", err)})
		return
	}
	_ = tokenwire.WriteAnswer(conn, s.answer(l, req)) // the guest may be gone
}

// answer returns a token about the sandbox that has the line's VM now.
func (s *Server) answer(l *line, req tokenwire.Request) tokenwire.Answer {
	b := s.cfg.Sandboxes.ByProcess(l.proc.Load())
	switch {
	case b == nil:
		return refuse(tokenwire.Unavailable, "this guest is no sandbox any more")
	case !b.Info().Kin.Identity:
		return refuse(tokenwire.Denied, "this sandbox gets no identity tokens: it was made without identity")
	case s.cfg.Issuer == nil:
		return refuse(tokenwire.Denied, "this daemon issues no identity tokens")
	case !l.tokens.Try(s.cfg.Now()), !s.tenant(b.Info().Owner).Try(s.cfg.Now()):
		return refuse(tokenwire.Limit, "more than %d tokens a second, or %d for all sandboxes of the tenant: keep a token "+
			"until shortly before its end", TokenRate, tenantRate)
	}
	token, err := s.cfg.Issuer.Mint(b.Info(), req.Audience)
	switch {
	case errors.Is(err, sandbox.ErrInvalid):
		return refuse(tokenwire.Invalid, "%v", err)
	case errors.Is(err, sandbox.ErrForbidden):
		return refuse(tokenwire.Denied, "%v", err)
	case err != nil:
		s.cfg.Log.Warn("identity token", "sandbox", b.ID(), "err", err)
		return refuse(tokenwire.Unavailable, "the daemon cannot sign tokens: see its log")
	case !b.Is(l.proc.Load()): // a promotion has given the VM to another sandbox meanwhile
		return refuse(tokenwire.Unavailable, "this guest has become another sandbox: try again")
	}
	s.cfg.Log.Debug("identity token issued", "sandbox", b.ID(), "audience", req.Audience, "expires", token.Expires)
	return tokenwire.Answer{Token: token.Text, Expires: token.Expires.Unix()}
}

func (s *Server) tenant(name string) *pace.Bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.tenants[name]
	if b == nil {
		b = pace.New(tenantRate, tenantBurst)
		s.tenants[name] = b
	}
	return b
}

func refuse(code tokenwire.Code, format string, args ...any) tokenwire.Answer {
	return tokenwire.Answer{Error: tokenwire.Errorf(code, format, args...)}
}
