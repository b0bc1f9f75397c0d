// Package socks5test is a SOCKS5 proxy on loopback for tests: with a user name and a password or
// without, it connects in earnest, unless it is told what to reply. It is written from RFC 1928
// and RFC 1929 and shares no code with package socks5, whose mistakes it must not repeat. The
// trap: it knows addresses only, since names are never sent.
package socks5test

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
)

// Server is a proxy on loopback. Its fields are set by what New is given.
type Server struct {
	User, Password string // empty: nobody is asked
	Shown          string // "user:password" of its URL, if they are not the right ones
	Reply          byte   // instead of connecting; 0: none
	Silent         bool   // it never answers
	Greeting       string // in place of what it has to say; empty: none

	listener net.Listener
	wait     sync.WaitGroup

	mu    sync.Mutex
	asked []netip.AddrPort
	conns []net.Conn
}

// New starts a proxy, which the test's end closes.
func New(t *testing.T, set ...func(*Server)) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{listener: l}
	for _, do := range set {
		do(s)
	}
	s.wait.Go(s.accept)
	t.Cleanup(s.Close)
	return s
}

// Close ends it and its connections.
func (s *Server) Close() {
	s.listener.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wait.Wait()
}

// Address is where it listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// URL is that of it, with what it asks for.
func (s *Server) URL() string {
	switch {
	case s.Shown != "":
		return "socks5://" + s.Shown + "@" + s.Address()
	case s.User == "":
		return "socks5://" + s.Address()
	}
	return "socks5://" + s.User + ":" + s.Password + "@" + s.Address()
}

// Asked are the addresses that it was asked for.
func (s *Server) Asked() []netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]netip.AddrPort(nil), s.asked...)
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
	to, ok := request(c)
	if !ok {
		return
	}
	s.mu.Lock()
	s.asked = append(s.asked, to)
	s.mu.Unlock()
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
	c.Write(append([]byte{5, 0, 0, 3, 4}, "here\x00\x00"...)) // bound at a name: rare, and allowed
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

// greet asks for the user name and the password, if it wants them.
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

// block reads bytes that have their number before them, after so many others.
func block(c net.Conn, before int) ([]byte, bool) {
	head := make([]byte, before+1)
	if _, err := io.ReadFull(c, head); err != nil {
		return nil, false
	}
	b := make([]byte, head[before])
	_, err := io.ReadFull(c, b)
	return b, err == nil
}

func request(c net.Conn) (to netip.AddrPort, ok bool) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(c, head); err != nil || head[1] != 1 {
		return to, false
	}
	n := map[byte]int{1: 4, 4: 16}[head[3]]
	b := make([]byte, n+2)
	if _, err := io.ReadFull(c, b); err != nil {
		return to, false
	}
	addr, ok := netip.AddrFromSlice(b[:n])
	return netip.AddrPortFrom(addr, uint16(b[n])<<8|uint16(b[n+1])), ok
}
