package nettest

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Echo returns all TCP bytes and UDP datagrams to their sender.
func (n *Internet) Echo(t testing.TB, addr string) {
	t.Helper()
	l, p := n.Listen(t, addr), n.ListenPacket(t, addr)
	var wait sync.WaitGroup
	wait.Go(func() {
		buf := make([]byte, 65536)
		for {
			k, from, err := p.ReadFrom(buf)
			if err != nil {
				return
			}
			p.WriteTo(buf[:k], from)
		}
	})
	var conns []net.Conn
	wait.Go(func() {
		defer func() {
			for _, c := range conns {
				c.Close()
			}
		}()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns = append(conns, c)
			wait.Go(func() { defer c.Close(); io.Copy(c, c) })
		}
	})
	t.Cleanup(func() { l.Close(); p.Close(); wait.Wait() })
}

// HTTP serves at an address. With TLS it uses httptest's certificate, for example.com.
func (n *Internet) HTTP(t testing.TB, addr string, secure bool, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = n.Listen(t, addr)
	if secure {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// Zones are the DNS server's addresses by name, in lowercase without the final dot.
type Zones map[string][]netip.Addr

// DNS serves zones, and returns the path of a resolv.conf with the server. asked returns all names
// asked so far.
func (n *Internet) DNS(t testing.TB, zones Zones) (resolvConf string, asked func() []string) {
	t.Helper()
	p := n.ListenPacket(t, net.JoinHostPort(Resolver, "53"))
	var mu sync.Mutex
	var names []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			k, from, err := p.ReadFrom(buf)
			if err != nil {
				return
			}
			name, answer := zones.answer(buf[:k])
			mu.Lock()
			names = append(names, name)
			mu.Unlock()
			p.WriteTo(answer, from)
		}
	}()
	t.Cleanup(func() { p.Close(); <-done })
	resolvConf = filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolvConf, []byte("nameserver "+Resolver+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return resolvConf, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), names...)
	}
}

// answer keeps the case of the question.
func (z Zones) answer(query []byte) (name string, answer []byte) {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return "", nil
	}
	q := m.Questions[0]
	name = strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	out := dnsmessage.Message{Questions: m.Questions}
	out.ID, out.Response, out.RecursionAvailable = m.ID, true, true
	addrs, known := z[name]
	if !known {
		out.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addrs {
		h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 0}
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			out.Answers = append(out.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			out.Answers = append(out.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	answer, _ = out.Pack()
	return name, answer
}
