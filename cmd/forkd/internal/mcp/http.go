package mcp

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Path is the path of the HTTP endpoint.
const Path = "/mcp"

// HTTPOptions configure ServeHTTP.
type HTTPOptions struct {
	// Token is the bearer token that every request must have.
	Token string
	// Hosts are names that requests may use for this server beside those of this host, for a reverse
	// proxy. They have no port.
	Hosts []string
}

// CheckListen returns an error if an address is not one of this host only. Other users' hosts would
// send the token without encryption.
func CheckListen(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("address %q: want 127.0.0.1:PORT", address)
	}
	ip, err := netip.ParseAddr(host)
	if host != "localhost" && (err != nil || !ip.Unmap().IsLoopback()) || port == "" {
		return fmt.Errorf("address %q: want one of this host, such as 127.0.0.1:8890; a reverse proxy or ssh -L makes it "+
			"reachable from elsewhere", address)
	}
	return nil
}

// ServeHTTP serves sessions over streamable HTTP until ctx ends. Clients of version 2025-11-25 have
// a session each. Version 2026-07-28 has no sessions, so its clients share one.
func (s *Server) ServeHTTP(ctx context.Context, l net.Listener, opt HTTPOptions) error {
	h := s.newHub()
	defer h.close()
	server := &http.Server{
		Handler: guard{opt, h.handler()}, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	h.cancel() // calls in progress end, or Shutdown waits for them
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if server.Shutdown(last) != nil {
		server.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// hub has the sessions of an HTTP server.
type hub struct {
	server *Server
	shared *session // of clients without sessions

	mu      sync.Mutex // guards of
	of      map[*sdk.ServerSession]*session
	waiting sync.WaitGroup
}

func (s *Server) newHub() *hub {
	return &hub{server: s, shared: s.newSession(s.opt.Idle), of: map[*sdk.ServerSession]*session{}}
}

// handler returns the handler for both versions.
func (h *hub) handler() http.Handler {
	s := h.server
	with := s.build(h.session)
	without := s.build(func(*sdk.ServerSession) *session { return h.shared })
	sessions := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return with },
		&sdk.StreamableHTTPOptions{SessionTimeout: s.opt.Idle, MaxRequestBodyBytes: maxMessage, Logger: s.opt.Log})
	stateless := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return without },
		&sdk.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: maxMessage,
			Logger: s.opt.Log})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != Path:
			http.Error(w, "the endpoint is "+Path, http.StatusNotFound)
		case r.Header.Get("Mcp-Protocol-Version") >= versions[0]:
			stateless.ServeHTTP(w, r)
		default:
			sessions.ServeHTTP(w, r)
		}
	})
}

// session returns the session of a connection, and makes it for the first call.
func (h *hub) session(ss *sdk.ServerSession) *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.of[ss]
	if n != nil {
		return n
	}
	n = h.server.newSession(0) // the SDK ends idle sessions
	h.of[ss] = n
	h.waiting.Go(func() {
		_ = ss.Wait() // why it ended does not matter
		h.mu.Lock()
		delete(h.of, ss)
		h.mu.Unlock()
		n.close()
	})
	return n
}

// all returns the sessions and their connections. The shared session has none.
func (h *hub) all() (sessions []*session, connections []*sdk.ServerSession) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ss, n := range h.of {
		sessions, connections = append(sessions, n), append(connections, ss)
	}
	return append(sessions, h.shared), connections
}

// cancel ends the calls in progress.
func (h *hub) cancel() {
	sessions, _ := h.all()
	for _, n := range sessions {
		n.cancel()
	}
}

// close ends all sessions.
func (h *hub) close() {
	h.cancel()
	_, connections := h.all()
	for _, ss := range connections {
		ss.Close()
	}
	h.waiting.Wait()
	h.shared.close()
}

// guard lets only requests with the token through. It checks Host and Origin first: a page in a
// browser that reaches this address by DNS rebinding sends its own names.
type guard struct {
	opt  HTTPOptions
	next http.Handler
}

func (g guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !g.isOurs(r.Host):
		http.Error(w, "the Host header is not a name of this server", http.StatusForbidden)
	case !g.sameOrigin(r.Header.Values("Origin")):
		http.Error(w, "the Origin header is not of this host", http.StatusForbidden)
	case !g.hasToken(r.Header.Get("Authorization")):
		w.Header().Set("WWW-Authenticate", `Bearer realm="forkd mcp"`)
		http.Error(w, "want the header Authorization: Bearer TOKEN, with the token that forkd mcp printed",
			http.StatusUnauthorized)
	default:
		g.next.ServeHTTP(w, r)
	}
}

// isOurs reports whether a host, with or without a port, is this server's.
func (g guard) isOurs(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return host == "localhost" || slices.Contains(g.opt.Hosts, host)
}

// sameOrigin reports whether a request comes from no web page, or from one of this host.
func (g guard) sameOrigin(origins []string) bool {
	for _, origin := range origins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || !g.isOurs(u.Host) {
			return false
		}
	}
	return true
}

func (g guard) hasToken(header string) bool {
	scheme, token, _ := strings.Cut(header, " ")
	return strings.EqualFold(scheme, "Bearer") &&
		subtle.ConstantTimeCompare([]byte(strings.TrimSpace(token)), []byte(g.opt.Token)) == 1
}
