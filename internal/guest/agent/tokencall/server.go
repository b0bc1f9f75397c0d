// Package tokencall is the guest's side of identity tokens. Programs ask over HTTP on a Unix socket,
// which is out of reach for requests that a program was tricked into sending. Each request is passed
// to the host over its own connection, and no token is kept: a clone asks its own host anew.
//
// A guest may be cloned between the host's answer and the program's. The clone then drops the answer,
// as it is about the source, and asks again. Package generation detects this.
package tokencall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/mdlayher/vsock"

	"github.com/forkd/forkd/internal/guest/agent/generation"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/tokenwire"
	"github.com/forkd/forkd/internal/leaf/ctxsleep"
)

const (
	// Socket is the path on which programs in the guest ask.
	Socket = "/run/forkd/identity.sock"
	// Path is the route on it, with the audience as its query.
	Path = "/v1/token"
)

const (
	maxCalls    = 16               // requests served at the same time
	patience    = 15 * time.Second // default for retries while the host does not answer
	hostTimeout = 15 * time.Second // for one answer of the host
)

// Config configures a Server.
type Config struct {
	Guest *generation.Guest // detects that the guest was cloned
	// Dial connects to the host's port for tokens.
	Dial func(ctx context.Context) (net.Conn, error)
	// Patience is how long a request is retried if the host does not answer. 0 means 15 s.
	Patience time.Duration
}

// Server answers programs.
type Server struct {
	cfg   Config
	slots chan struct{}
}

// New returns a server. Call Serve with a listener.
func New(cfg Config) *Server {
	if cfg.Patience == 0 {
		cfg.Patience = patience
	}
	return &Server{cfg: cfg, slots: make(chan struct{}, maxCalls)}
}

// Dial connects to the host over vsock. The kernel gives up after a few seconds.
func Dial(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return vsock.Dial(vsock.Host, agentproto.TokenPort, nil)
}

// Serve answers programs until ctx ends. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, s.token)
	srv := &http.Server{
		Handler: mux, BaseContext: func(net.Listener) context.Context { return ctx },
		ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10,
		ErrorLog: log.New(io.Discard, "", 0), // programs of the guest cause these errors
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve identity tokens: %w", err)
	}
	return nil
}

// statuses are the HTTP statuses of errors.
var statuses = map[tokenwire.Code]int{
	tokenwire.Invalid: http.StatusBadRequest, tokenwire.Denied: http.StatusForbidden,
	tokenwire.Limit: http.StatusTooManyRequests, tokenwire.Unavailable: http.StatusServiceUnavailable,
}

// token answers one program.
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	var a tokenwire.Answer
	select {
	case s.slots <- struct{}{}:
		a = s.ask(r.Context(), tokenwire.Request{Audience: r.URL.Query().Get("audience")})
		<-s.slots
	default:
		a.Error = tokenwire.Errorf(tokenwire.Limit, "%d requests for tokens are under way already", maxCalls)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if a.Error != nil {
		status := statuses[a.Error.Code]
		if status == 0 {
			status = http.StatusServiceUnavailable
		}
		w.WriteHeader(status)
	}
	_ = json.NewEncoder(w).Encode(a)
}

// ask gets an answer about this guest from its host.
func (s *Server) ask(ctx context.Context, req tokenwire.Request) tokenwire.Answer {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Patience)
	defer cancel()
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		marked := s.cfg.Guest.Mark(ctx)
		a, err := s.once(marked, req)
		if err == nil && !generation.Changed(marked) {
			return a
		}
		if err == nil {
			continue // the answer is about the source of this clone
		}
		if !ctxsleep.For(ctx, wait) {
			return tokenwire.Answer{Error: tokenwire.Errorf(tokenwire.Unavailable, "the host does not answer: %v", err)}
		}
	}
}

// once asks the host once.
func (s *Server) once(ctx context.Context, req tokenwire.Request) (tokenwire.Answer, error) {
	conn, err := s.cfg.Dial(ctx)
	if err != nil {
		return tokenwire.Answer{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(hostTimeout))
	if err := tokenwire.WriteRequest(conn, req); err != nil {
		return tokenwire.Answer{}, err
	}
	return tokenwire.ReadAnswer(conn)
}
