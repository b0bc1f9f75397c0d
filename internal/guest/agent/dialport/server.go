// Package dialport lets the host reach servers in the guest: it takes requests of
// package dialwire, dials the guest's own addresses, and passes bytes both ways. Servers
// that listen on localhost only are reached as well, and a guest without a network
// device too. It knows no vsock: its listener is the caller's. The trap: in a clone all
// connections of the source break at once, and their goroutines must then end by themselves.
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

// Config is what a Server is made of. Its zero value is that of a guest.
type Config struct {
	// Admit refuses callers by their address; nil admits all.
	Admit func(net.Addr) error
	// Addresses are those of the guest's network, tried after the loopback's; nil means eth0's.
	Addresses func() []net.IP
	// Most is how many connections there may be; 0 means 900: the device has 1024.
	Most int
	// Hello bounds the request, Dial all attempts to connect; 0 means 10 s and 25 s.
	Hello, Dial time.Duration
	// Log gets one line per noteworthy event; nil drops them.
	Log func(format string, args ...any)
}

// overflow is how many connections over Config.Most still get an answer.
const overflow = 32

// Server passes connections on.
type Server struct {
	cfg  Config
	open atomic.Int64
}

// New makes a Server.
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
		cfg.Dial = 25 * time.Second // a guest among a hundred that are busy may stand still for a while
	}
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	return &Server{cfg: cfg}
}

// Serve answers on l until ctx ends or l fails, and then breaks all connections. Closing
// l is Serve's.
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
	// Until bytes flow the caller can only close, which its first read or write shows.
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
