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
	"regexp"
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
// a session each. Version 2026-07-28 has no sessions, so its clients share one for each path: Path, or
// Path/NAME with a name of the clients' choice.
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

// maxShared limits the paths with a shared session. A path keeps its session until the server ends.
const maxShared = 64

// pathName is the form of NAME in a path.
var pathName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

// hub has the sessions of an HTTP server.
type hub struct {
	server *Server

	mu      sync.Mutex         // guards shared and of
	shared  map[string]*shared // of clients without sessions, by path
	of      map[*sdk.ServerSession]*session
	waiting sync.WaitGroup
}

// shared is the session of the clients of one path.
type shared struct {
	session *session
	server  *sdk.Server
}

func (s *Server) newHub() *hub {
	return &hub{server: s, shared: map[string]*shared{}, of: map[*sdk.ServerSession]*session{}}
}

// isPath reports whether a path is the endpoint, with or without a name.
func isPath(path string) bool {
	name, ok := strings.CutPrefix(path, Path+"/")
	return path == Path || ok && pathName.MatchString(name)
}

// at returns the server for the shared session of a path, and makes it for the first request. It returns
// nil if there are too many.
func (h *hub) at(path string) *sdk.Server {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.shared[path]; e != nil {
		return e.server
	}
	if len(h.shared) >= maxShared {
		return nil
	}
	n := h.server.newSession(h.server.opt.Idle)
	e := &shared{n, h.server.build(func(*sdk.ServerSession) *session { return n })}
	h.shared[path] = e
	return e.server
}

// handler returns the handler for both versions.
func (h *hub) handler() http.Handler {
	s := h.server
	with := s.build(h.session)
	sessions := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return with },
		&sdk.StreamableHTTPOptions{SessionTimeout: s.opt.Idle, MaxRequestBodyBytes: maxMessage, Logger: s.opt.Log})
	stateless := sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server { return h.at(r.URL.Path) },
		&sdk.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: maxMessage,
			Logger: s.opt.Log})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !isPath(r.URL.Path):
			http.Error(w, "the endpoint is "+Path+", or "+Path+"/NAME with up to 32 of a-z, 0-9, _ and -", http.StatusNotFound)
		case r.Header.Get("Mcp-Protocol-Version") >= versions[0]:
			if h.at(r.URL.Path) == nil {
				http.Error(w, fmt.Sprintf("%d names are in use; restart forkd mcp to end their sessions", maxShared),
					http.StatusTooManyRequests)
				return
			}
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

// all returns the sessions, first the shared ones, and the connections of the others.
func (h *hub) all() (sessions []*session, connections []*sdk.ServerSession) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.shared {
		sessions = append(sessions, e.session)
	}
	for ss, n := range h.of {
		sessions, connections = append(sessions, n), append(connections, ss)
	}
	return sessions, connections
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
	sessions, connections := h.all()
	for _, ss := range connections {
		ss.Close()
	}
	h.waiting.Wait()
	var ends sync.WaitGroup
	for _, n := range sessions {
		ends.Go(n.close) // again for the connections' own, which has no effect
	}
	ends.Wait()
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
