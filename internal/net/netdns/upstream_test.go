package netdns

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// server is a resolver on loopback, over UDP and TCP on the same port, with answers from the test.
type server struct {
	addr netip.AddrPort
}

// serve starts a server. It sends each result of udp as one datagram.
func serve(t *testing.T, udp func(q []byte) [][]byte, tcp func(q []byte) []byte) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr).AddrPort()
	pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{}, 2)
	go func() {
		defer func() { done <- struct{}{} }()
		buf := make([]byte, maxMessage)
		for {
			n, from, err := pc.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			for _, out := range udp(bytes.Clone(buf[:n])) {
				pc.WriteToUDPAddrPort(out, from)
			}
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if q, err := readFrame(conn); err == nil && tcp != nil {
				conn.Write(tcp(q))
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		pc.Close()
		<-done
		<-done
	})
	return &server{addr}
}

func (s *server) client() *Client {
	return &Client{Servers: func() []netip.AddrPort { return []netip.AddrPort{s.addr} }, Try: 300 * time.Millisecond}
}

// truth returns a true answer to a query, with one address. change may falsify it.
func truth(q []byte, change func(*dnsmessage.Message)) []byte {
	var m dnsmessage.Message
	if m.Unpack(q) != nil {
		return nil
	}
	m.Response, m.Additionals = true, nil
	if len(m.Questions) == 1 {
		m.Answers = []dnsmessage.Resource{a("example.org.", "9.9.9.9", 5)}
	}
	if change != nil {
		change(&m)
	}
	out, _ := m.Pack()
	return out
}

var question0 = dnsmessage.Question{Name: name("example.org."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}

func TestOnlyAnAnswerToTheQuestionCounts(t *testing.T) {
	lies := [][]byte{{}, []byte("short")}
	s := serve(t, func(q []byte) [][]byte {
		loop := append(bytes.Clone(q[:12]), 0xc0, 12, 0, 1, 0, 1)
		loop[2] |= 0x80
		return append(lies,
			q, // not an answer
			truth(q, func(m *dnsmessage.Message) { m.ID++ }),
			truth(q, func(m *dnsmessage.Message) { m.Questions[0].Name = name("evil.test.") }),
			truth(q, func(m *dnsmessage.Message) { m.Questions[0].Type = dnsmessage.TypeTXT }),
			truth(q, func(m *dnsmessage.Message) { m.Questions = nil }),
			truth(q, func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) }),
			truth(q, nil)[:40], // its record is cut off
			loop,
			truth(q, nil))
	}, nil)
	m, err := s.client().Ask(context.Background(), question0)
	if err != nil || len(m.Answers) != 1 {
		t.Errorf("got %v, %v", m, err)
	}
}

func TestOnlyLiesAreATimeout(t *testing.T) {
	s := serve(t, func(q []byte) [][]byte {
		return [][]byte{truth(q, func(m *dnsmessage.Message) { m.ID ^= 1 })}
	}, nil)
	c := s.client()
	c.Try = 50 * time.Millisecond
	if m, err := c.Ask(context.Background(), question0); err == nil {
		t.Errorf("got %v", m)
	}
}

func TestLargeAndDoubtfulAnswersAreAskedForOverTCP(t *testing.T) {
	for what, first := range map[string]func(*dnsmessage.Message){
		"truncated":          func(m *dnsmessage.Message) { m.Truncated, m.Answers = true, nil },
		"with other letters": func(m *dnsmessage.Message) { m.Questions[0].Name = name("example.org.") },
	} {
		s := serve(t, func(q []byte) [][]byte { return [][]byte{truth(q, first)} }, func(q []byte) []byte {
			return AppendFrame(nil, truth(q, func(m *dnsmessage.Message) {
				for range 2000 {
					m.Answers = append(m.Answers, a("example.org.", "9.9.9.9", 5))
				}
			}))
		})
		m, err := s.client().Ask(context.Background(), question0)
		// With a probability of 1/1024, all letters of the question are in lowercase.
		if err != nil || len(m.Answers) != 2001 && len(m.Answers) != 1 {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

func TestAStreamThatEndsEarlyIsAnError(t *testing.T) {
	s := serve(t, func(q []byte) [][]byte {
		return [][]byte{truth(q, func(m *dnsmessage.Message) { m.Truncated = true })}
	}, func([]byte) []byte { return []byte{0xff, 0xff, 1, 2} })
	if m, err := s.client().Ask(context.Background(), question0); err == nil {
		t.Errorf("got %v", m)
	}
}

func TestTheNextServerIsAsked(t *testing.T) {
	refuses := serve(t, func(q []byte) [][]byte {
		return [][]byte{truth(q, func(m *dnsmessage.Message) { m.RCode, m.Answers = dnsmessage.RCodeRefused, nil })}
	}, nil)
	good := serve(t, func(q []byte) [][]byte { return [][]byte{truth(q, nil)} }, nil)
	c := &Client{Servers: func() []netip.AddrPort { return []netip.AddrPort{refuses.addr, good.addr} }}
	if m, err := c.Ask(context.Background(), question0); err != nil || m.RCode != 0 {
		t.Errorf("got %v, %v", m, err)
	}
	c.Servers = func() []netip.AddrPort { return []netip.AddrPort{refuses.addr} }
	if m, err := c.Ask(context.Background(), question0); err != nil || m.RCode != dnsmessage.RCodeRefused {
		t.Errorf("got %v, %v", m, err)
	}
}

func TestAskEndsWithItsContext(t *testing.T) {
	s := serve(t, func([]byte) [][]byte { return nil }, nil)
	ctx, cancel := context.WithCancelCause(context.Background())
	gone := errors.New("the guest is gone")
	c := s.client()
	c.Try = time.Hour
	ended := make(chan error)
	go func() {
		_, err := c.Ask(ctx, question0)
		ended <- err
	}()
	cancel(gone)
	if err := <-ended; !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

func TestFrames(t *testing.T) {
	for what, in := range map[string]string{"empty": "", "half a length": "\x00", "nothing in it": "\x00\x00", "cut": "\x00\x05abc", "large": "\xff\xff"} {
		if b, err := readFrame(strings.NewReader(in)); err == nil {
			t.Errorf("%s: got %q", what, b)
		}
	}
	b, err := readFrame(bytes.NewReader(AppendFrame(nil, []byte("hello"))))
	if err != nil || string(b) != "hello" {
		t.Errorf("got %q, %v", b, err)
	}
	if got := AppendFrame(nil, make([]byte, maxMessage+1)); got != nil {
		t.Errorf("a frame of %d bytes", binary.BigEndian.Uint16(got))
	}
}

func TestResolvConfIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	c, now := OpenResolvConf(path), time.Unix(1000, 0)
	c.now = func() time.Time { return now }
	want := func(text string) {
		t.Helper()
		var got []string
		for _, s := range c.Servers() {
			got = append(got, s.String())
		}
		if s := strings.Join(got, " "); s != text {
			t.Errorf("got %q, want %q", s, text)
		}
	}
	want("127.0.0.1:53")
	if err := os.WriteFile(path, []byte("# nameserver 1.1.1.1\nnameserver 9.9.9.9 \nnameserver\nnameserver x\nnameserver fe80::1%eth0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("127.0.0.1:53")
	now = now.Add(2 * time.Second)
	want("9.9.9.9:53 [fe80::1%eth0]:53")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Second)
	want("127.0.0.1:53")
}

func FuzzUpstreamMessage(f *testing.F) {
	asked, err := newQuestion(question0)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(truth(asked.msg, nil))
	f.Add(truth(asked.msg, func(m *dnsmessage.Message) {
		m.Answers = append(m.Answers, alias("example.org.", "b.test."), alias("b.test.", "c.test."))
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 2 {
			binary.BigEndian.PutUint16(b, asked.id)
		}
		m, err := asked.check(b)
		if err != nil && !errors.Is(err, errLetters) {
			return
		}
		k, err := keep(question0, m)
		if err != nil {
			return
		}
		rep := plain(m.RCode)
		rep.answers, rep.authority = k.records, k.soa
		q := query{question: question0, size: mostSize}
		if out := rep.pack(&q, true); out == nil {
			t.Error("there is no answer")
		}
	})
}
