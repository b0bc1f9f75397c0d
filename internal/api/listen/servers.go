package listen

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/api/auth"
)

// Servers are the HTTP servers of the daemon's listeners.
type Servers struct {
	// Handler returns the handler of the requests of a kind of listener.
	Handler func(auth.Access) http.Handler
	Header  time.Duration // for a request's header to arrive
	Write   time.Duration // for a client to read a piece of an answer over HTTP/2
	Waiting int           // connections of a listener without a request in a handler
	HTTP2   bool          // all listeners serve HTTP/2 without TLS
	Log     *slog.Logger
	// ErrorLog receives messages of net/http about connections.
	ErrorLog *log.Logger
	// Stopping is called when the servers begin to stop. It ends the streams that never end by themselves.
	Stopping func()
}

// Run serves all listeners until ctx ends, then stops in order: it accepts no more connections,
// gives requests in flight the grace period to end, then cuts them off. It returns when all
// handlers have returned. It owns the listeners.
func (s Servers) Run(ctx context.Context, listeners []Listener, grace time.Duration) error {
	// Requests outlive ctx by the grace.
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var handlers sync.WaitGroup
	servers := make([]*http.Server, len(listeners))
	ended := make(chan error, len(listeners))
	for i, l := range listeners {
		door := newConnLimiter(l, s.Waiting)
		handler := s.Handler(l.Access)
		if l.Around != nil {
			handler = l.Around(handler)
		}
		servers[i] = &http.Server{
			Handler:           counted(&handlers, handler),
			ReadHeaderTimeout: s.Header,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			BaseContext:       func(net.Listener) context.Context { return base },
			ConnContext:       withConn(l.Access.Group),
			ConnState:         door.connLimiter.changed,
			ErrorLog:          s.ErrorLog,
			Protocols:         s.protocols(l),
			HTTP2:             &http.HTTP2Config{WriteByteTimeout: s.Write},
		}
		go func() { ended <- servers[i].Serve(door) }()
		s.Log.Info("listening", "url", l.URL)
	}
	var first error
	running := len(listeners)
	select {
	case <-ctx.Done():
	case first = <-ended: // a listener failed: stop the daemon instead of serving the others only
		running--
	}
	s.stop(servers, grace, cut)
	for range running {
		<-ended
	}
	handlers.Wait()
	if errors.Is(first, http.ErrServerClosed) {
		first = nil
	}
	return first
}

// stop ends the servers, gracefully at first. Hijacked connections have no end to wait for. They
// end when the requests have ended.
func (s Servers) stop(servers []*http.Server, grace time.Duration, cut func()) {
	s.Stopping()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	var wg sync.WaitGroup
	for _, srv := range servers {
		wg.Go(func() {
			if err := srv.Shutdown(ctx); err != nil {
				cut()
				_ = srv.Close()
			}
		})
	}
	wg.Wait()
	cut()
}

// counted lets Run wait for handlers, because http.Server.Close does not.
func counted(wg *sync.WaitGroup, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wg.Add(1)
		defer wg.Done()
		next.ServeHTTP(w, r)
	})
}

// protocols returns the protocols of a listener. HTTP/2 without TLS is for gRPC in sandboxes. TLS
// ends below the connections of net/http, so net/http sees HTTP/2 over TLS as HTTP/2 without TLS.
func (s Servers) protocols(l Listener) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(s.HTTP2 || l.TLS)
	return p
}
