// Package dialport connects the host with servers in the guest. It receives requests of package
// dialwire, dials the guest's own addresses and passes bytes in both directions. It also reaches
// servers that listen only on localhost, and works without a network device. The caller provides
// the listener, on vsock or otherwise. In a clone, all connections of the source break at the same
// time, and their goroutines must then end without help.
package dialport

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto/dialwire"
	"github.com/forkd/forkd/internal/leaf/duplex"
)

// Config configures a Server. The zero value fits a guest.
type Config struct {
	// Admit refuses callers by their address. If nil, all are admitted.
	Admit func(net.Addr) error
	// Addresses returns the addresses of the guest's network, tried after loopback. If nil, the
	// addresses of eth0.
	Addresses func() []net.IP
	// Most limits the number of connections. 0 means 900; the device has 1024.
	Most int
	// Hello limits the time for the request, Dial the time for all attempts to connect. 0 means 10
	// s and 25 s.
	Hello, Dial time.Duration
	// Using is locked while a connection is open. It may be nil.
	Using sync.Locker
	// Log receives one line per noteworthy event. If nil, events are dropped.
	Log func(format string, args ...any)
}

// overflow is the number of connections above Config.Most that still get an answer.
const overflow = 32

// Server accepts connections and passes them on.
type Server struct {
	cfg  Config
	open atomic.Int64
}

// New returns a Server.
func New(cfg Config) *Server {
	if cfg.Admit == nil {
		cfg.Admit = func(net.Addr) error { return nil }
	}
	if cfg.Addresses == nil {
		cfg.Addresses = networkAddresses
	}
	if cfg.Most == 0 {
		cfg.Most = 900
	}
	if cfg.Hello == 0 {
		cfg.Hello = 10 * time.Second
	}
	if cfg.Dial == 0 {
		cfg.Dial = 25 * time.Second // a guest may stall for a while if a hundred others are busy
	}
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	return &Server{cfg: cfg}
}

// Serve answers on l until ctx ends or l fails, then breaks all connections. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				c.Close()
			}
			return nil
		}
		if err != nil {
			return err
		}
		if s.open.Add(1) > int64(s.cfg.Most+overflow) {
			s.open.Add(-1)
			c.Close()
			continue
		}
		conns.Go(func() {
			defer s.open.Add(-1)
			if s.cfg.Using != nil {
				s.cfg.Using.Lock()
				defer s.cfg.Using.Unlock()
			}
			s.serve(ctx, c)
		})
	}
}

// serve answers one connection and closes it.
func (s *Server) serve(ctx context.Context, c net.Conn) {
	defer c.Close()
	if err := s.cfg.Admit(c.RemoteAddr()); err != nil {
		s.cfg.Log("dial: %v", err)
		return
	}
	// Until bytes flow, the caller can only close. The first read or write detects that.
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	_ = c.SetReadDeadline(time.Now().Add(s.cfg.Hello))
	req, err := dialwire.ReadRequest(c)
	if err != nil {
		if !errors.Is(err, net.ErrClosed) && ctx.Err() == nil {
			_ = dialwire.WriteAnswer(c, dialwire.Invalid)
		}
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	if s.open.Load() > int64(s.cfg.Most) {
		_ = dialwire.WriteAnswer(c, dialwire.Busy)
		return
	}
	to, code := s.dial(ctx, req)
	if to != nil {
		defer to.Close()
	}
	if err := dialwire.WriteAnswer(c, code); err != nil || to == nil {
		return
	}
	duplex.Join(ctx, c, to)
}
