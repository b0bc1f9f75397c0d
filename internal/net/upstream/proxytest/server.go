// Package proxytest is a SOCKS5 proxy on loopback for tests, with or without user name and
// password. It really connects, unless a test sets the reply. It is written from RFC 1928 and RFC
// 1929 and shares no code with package upstream, so it does not repeat that package's mistakes. It
// knows no name but those that a test gives it. HTTP is a proxy with the method CONNECT, served by net/http.
package proxytest

import (
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
)

// Server is a proxy on loopback. The functions passed to New set its fields.
type Server struct {
	User, Password string // if empty, no authentication
	Shown          string // "user:password" for its URL, if different from the right ones
	Reply          byte   // sent instead of connecting, unless 0
	Silent         bool   // it never answers
	Greeting       string // sent instead of the protocol, unless empty
	// Hosts are the names that it resolves.
	Hosts map[string]netip.Addr

	listener net.Listener
	wait     sync.WaitGroup

	mu    sync.Mutex
	asked []netip.AddrPort
	names []string // asked by name: host and port
	conns []net.Conn
}

// New starts a proxy. The end of the test closes it.
func New(t *testing.T, set ...func(*Server)) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return On(t, l, set...)
}

// On is like New, for an open listener.
func On(t *testing.T, l net.Listener, set ...func(*Server)) *Server {
	s := &Server{listener: l}
	for _, do := range set {
		do(s)
	}
	s.wait.Go(s.accept)
	t.Cleanup(s.Close)
	return s
}

// Close ends the proxy and its connections.
func (s *Server) Close() {
	s.listener.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wait.Wait()
}

// Address returns the address on which it listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// URL returns its URL, with the user name and password.
func (s *Server) URL() string {
	switch {
	case s.Shown != "":
		return "socks5://" + s.Shown + "@" + s.Address()
	case s.User == "":
		return "socks5://" + s.Address()
	}
	return "socks5://" + s.User + ":" + s.Password + "@" + s.Address()
}

// Asked returns the requested addresses.
func (s *Server) Asked() []netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]netip.AddrPort(nil), s.asked...)
}

// Names returns the requested names, with their ports.
func (s *Server) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.names...)
}

// note records a request, and returns the address to connect to.
func (s *Server) note(host string, port uint16) (to netip.AddrPort, ok bool) {
	addr, err := netip.ParseAddr(host)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.names = append(s.names, net.JoinHostPort(host, strconv.Itoa(int(port))))
		addr, ok = s.Hosts[host]
		return netip.AddrPortFrom(addr, port), ok
	}
	to = netip.AddrPortFrom(addr, port)
	s.asked = append(s.asked, to)
	return to, true
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.keep(c)
		s.wait.Go(func() {
			defer c.Close()
			s.serve(c.(*net.TCPConn))
		})
	}
}

func (s *Server) keep(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
}

func (s *Server) serve(c *net.TCPConn) {
	if s.Silent {
		io.Copy(io.Discard, c)
		return
	}
	if s.Greeting != "" {
		io.WriteString(c, s.Greeting)
		return
	}
	if !s.greet(c) {
		return
	}
	host, port, ok := request(c)
	if !ok {
		return
	}
	to, ok := s.note(host, port)
	if !ok {
		c.Write([]byte{5, 4, 0, 1, 0, 0, 0, 0, 0, 0})
		return
	}
	if s.Reply != 0 {
		c.Write([]byte{5, s.Reply, 0, 1, 0, 0, 0, 0, 0, 0})
		return
	}
	far, err := net.Dial("tcp", to.String())
	if err != nil {
		c.Write([]byte{5, 5, 0, 1, 0, 0, 0, 0, 0, 0})
		return
	}
	defer far.Close()
	s.keep(far)
	c.Write(append([]byte{5, 0, 0, 3, 4}, "here\x00\x00"...)) // bound to a name: rare, but allowed
	back := make(chan struct{})
	go func() {
		defer close(back)
		io.Copy(c, far)
		c.CloseWrite()
	}()
	io.Copy(far, c)
	far.(*net.TCPConn).CloseWrite()
	<-back
}

// greet requires the user name and the password, if there are any.
func (s *Server) greet(c net.Conn) bool {
	methods, ok := block(c, 1)
	if !ok {
		return false
	}
	if s.User == "" {
		c.Write([]byte{5, 0})
		return true
	}
	can := false
	for _, m := range methods {
		can = can || m == 2
	}
	if !can {
		c.Write([]byte{5, 0xff})
		return false
	}
	c.Write([]byte{5, 2})
	user, ok := block(c, 1)
	password, ok2 := block(c, 0)
	if !ok || !ok2 || string(user) != s.User || string(password) != s.Password {
		c.Write([]byte{1, 1})
		return false
	}
	c.Write([]byte{1, 0})
	return true
}

// block reads length-prefixed bytes. The length comes after before other bytes.
func block(c net.Conn, before int) ([]byte, bool) {
	head := make([]byte, before+1)
	if _, err := io.ReadFull(c, head); err != nil {
		return nil, false
	}
	b := make([]byte, head[before])
	_, err := io.ReadFull(c, b)
	return b, err == nil
}

func request(c net.Conn) (host string, port uint16, ok bool) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(c, head); err != nil || head[1] != 1 {
		return "", 0, false
	}
	n := map[byte]int{1: 4, 4: 16}[head[3]]
	if head[3] == 3 {
		if _, err := io.ReadFull(c, head[:1]); err != nil {
			return "", 0, false
		}
		n = int(head[0])
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(c, b); err != nil {
		return "", 0, false
	}
	port = uint16(b[n])<<8 | uint16(b[n+1])
	if head[3] == 3 {
		return string(b[:n]), port, true
	}
	addr, ok := netip.AddrFromSlice(b[:n])
	return addr.String(), port, ok
}
