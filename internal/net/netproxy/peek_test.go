package netproxy_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/net/netproxy"
)

// hello returns a ClientHello made by crypto/tls.
func hello(t testing.TB, name string, protocols ...string) []byte {
	t.Helper()
	a, b := net.Pipe()
	go func() {
		tls.Client(a, &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: protocols}).Handshake()
	}()
	defer a.Close()
	defer b.Close()
	buf := make([]byte, 1<<16)
	n, err := b.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

// split splits a handshake message into records of size bytes.
func split(record []byte, size int) (out []byte) {
	body := record[5:]
	for len(body) > 0 {
		n := min(size, len(body))
		out = append(out, 22, 3, 1, byte(n>>8), byte(n))
		out = append(out, body[:n]...)
		body = body[n:]
	}
	return out
}

func TestNamesAreRead(t *testing.T) {
	plain := hello(t, "api.example.com")
	long := hello(t, "api.example.com", func() (p []string) {
		for range 120 {
			p = append(p, strings.Repeat("x", 250))
		}
		return p
	}()...)
	if len(long) < 16<<10 {
		// crypto/tls splits a long hello into several records, but a pipe returns the first write
		t.Logf("the long hello's first piece has %d bytes", len(long))
	}
	for name, c := range map[string]struct {
		b      []byte
		source netproxy.Source
		want   string
	}{
		"a hello":                         {plain, netproxy.SNI, "api.example.com"},
		"a hello in records of one byte":  {split(plain, 1), netproxy.SNI, "api.example.com"},
		"a hello in ten records":          {split(plain, len(plain)/10), netproxy.SNI, "api.example.com"},
		"a request":                       {[]byte("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"), netproxy.Host, "example.com"},
		"a request with a port":           {[]byte("GET / HTTP/1.1\r\nA: b\r\nhOST:example.com:8080\r\n\r\n"), netproxy.Host, "example.com"},
		"a request as to a proxy":         {[]byte("GET http://example.com/a HTTP/1.1\r\nHost: example.com\r\n\r\n"), netproxy.Host, "example.com"},
		"a request with a body behind it": {[]byte("POST / HTTP/1.1\r\nHost: a.b\r\n\r\nHost: c.d\r\n\r\n"), netproxy.Host, "a.b"},
	} {
		t.Run(name, func(t *testing.T) {
			got, source, err := netproxy.Name(c.b)
			if err != nil || got != c.want || source != c.source {
				t.Errorf("name %q of %s: %v", got, source, err)
			}
		})
	}
}

func TestWhatNamesNoHostSurelyHasNoName(t *testing.T) {
	two := bytes.Replace(hello(t, "aa.example.com"), []byte("aa.example.com"), []byte("aa.exa\x00ple.com"), 1)
	for name, b := range map[string][]byte{
		"a hello without a name":          hello(t, "192.0.2.1"),
		"a name with a zero byte":         two,
		"another record":                  {22, 3, 1, 0, 4, 2, 0, 0, 0},
		"a hello of a megabyte":           {22, 3, 1, 0, 4, 1, 16, 0, 0},
		"SSH":                             []byte("SSH-2.0-OpenSSH_9\r\n"),
		"binary":                          {0, 1, 2, 3},
		"two Hosts":                       []byte("GET / HTTP/1.1\r\nHost: a.b\r\nHost: a.b\r\n\r\n"),
		"no Host":                         []byte("GET / HTTP/1.1\r\n\r\n"),
		"an address":                      []byte("GET / HTTP/1.1\r\nHost: 10.0.0.1:80\r\n\r\n"),
		"an address of IPv6":              []byte("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"),
		"another authority":               []byte("GET http://c.d/ HTTP/1.1\r\nHost: a.b\r\n\r\n"),
		"a folded header":                 []byte("GET / HTTP/1.1\r\nA: b\r\n Host: a.b\r\nHost: c.d\r\n\r\n"),
		"a blank before the colon":        []byte("GET / HTTP/1.1\r\nHost : a.b\r\n\r\n"),
		"ends of lines without CR":        []byte("GET / HTTP/1.1\nHost: a.b\n\n"),
		"a CR in a line":                  []byte("GET / HTTP/1.1\r\nA: b\rHost: c.d\r\nHost: a.b\r\n\r\n"),
		"HTTP/2's preface":                []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		"CONNECT":                         []byte("CONNECT a.b:443 HTTP/1.1\r\nHost: a.b\r\n\r\n"),
		"a user in the Host":              []byte("GET / HTTP/1.1\r\nHost: a.b@c.d\r\n\r\n"),
		"a head of more than 32 KiB":      []byte("GET / HTTP/1.1\r\nA: " + strings.Repeat("x", 33<<10)),
		"a method that never ends":        []byte(strings.Repeat("A", 100)),
		"a request of HTTP/0.9":           []byte("GET /\r\n\r\n"),
		"a hello with two names":          twoNames(t),
		"a hello's extension that is cut": cutExtension(t),
	} {
		t.Run(name, func(t *testing.T) {
			if got, _, err := netproxy.Name(b); !errors.Is(err, netproxy.ErrNoName) {
				t.Errorf("name %q: %v", got, err)
			}
		})
	}
}

// extend appends an extension to a hello, and corrects its lengths.
func extend(b, extension []byte) []byte {
	b = append(bytes.Clone(b), extension...)
	n := len(extension)
	binary.BigEndian.PutUint16(b[3:], binary.BigEndian.Uint16(b[3:])+uint16(n))
	binary.BigEndian.PutUint16(b[7:], binary.BigEndian.Uint16(b[7:])+uint16(n))
	at := 9 + 34
	at += 1 + int(b[at])
	at += 2 + int(binary.BigEndian.Uint16(b[at:]))
	at += 1 + int(b[at])
	binary.BigEndian.PutUint16(b[at:], binary.BigEndian.Uint16(b[at:])+uint16(n))
	return b
}

func twoNames(t *testing.T) []byte {
	return extend(hello(t, "a.example.com"), []byte{0, 0, 0, 8, 0, 6, 0, 0, 3, 'c', '.', 'd'})
}

func cutExtension(t *testing.T) []byte {
	return extend(hello(t, "a.example.com"), []byte{0, 9, 0, 8, 0})
}

func TestAPeekLeavesEveryByte(t *testing.T) {
	b := append(split(hello(t, "api.example.com"), 20), "and more"...)
	for _, size := range []int{1, 7, 1460, len(b)} {
		a := pieces(t, b, size)
		h, err := netproxy.Peek(a, time.Minute)
		if err != nil || h.Name != "api.example.com" {
			t.Fatalf("name %q in pieces of %d: %v", h.Name, size, err)
		}
		rest, _ := io.ReadAll(a)
		if got := append(h.Bytes, rest...); !bytes.Equal(got, b) {
			t.Errorf("%d bytes are left of %d in pieces of %d", len(got), len(b), size)
		}
	}
}

// pieces returns a connection with b in reads of size bytes, whatever the speed.
func pieces(t *testing.T, b []byte, size int) net.Conn {
	a, c := net.Pipe()
	t.Cleanup(func() { a.Close() })
	go func() {
		defer c.Close()
		for piece := range slices.Chunk(b, size) {
			if _, err := c.Write(piece); err != nil {
				return
			}
		}
	}()
	return a
}

func TestANameIsFoundBehindManyPackets(t *testing.T) {
	far := "GET / HTTP/1.1\r\nA: " + strings.Repeat("x", 30<<10) + "\r\nHost: example.com\r\n\r\n"
	if h, err := netproxy.Peek(pieces(t, []byte(far), 1460), time.Minute); err != nil || h.Name != "example.com" {
		t.Errorf("name %q: %v", h.Name, err)
	}
}

func TestAPeekOfSmallPiecesCostsLittle(t *testing.T) {
	endless := "GET / HTTP/1.1\r\nA: " + strings.Repeat("x", 30<<10)
	h, err := netproxy.Peek(pieces(t, []byte(endless), 1), time.Minute)
	if !errors.Is(err, netproxy.ErrNoName) || len(h.Bytes) > 8<<10 {
		t.Errorf("%d bytes: %v", len(h.Bytes), err)
	}
}

func TestAPeekEndsInTime(t *testing.T) {
	a, c := net.Pipe()
	defer a.Close()
	defer c.Close()
	if _, err := netproxy.Peek(a, time.Millisecond); !errors.Is(err, netproxy.ErrNoName) {
		t.Errorf("peek: %v", err)
	}
}

func FuzzName(f *testing.F) {
	f.Add(hello(f, "api.example.com"))
	f.Add(split(hello(f, "api.example.com"), 7))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		name, _, err := netproxy.Name(b)
		if err == nil && (name == "" || len(name) > 254 || strings.ContainsAny(name, "/:@ \x00\r\n")) {
			t.Errorf("name %q", name)
		}
		if err == nil {
			if again, _, err := netproxy.Name(append(bytes.Clone(b), 'x')); err != nil || again != name {
				t.Errorf("with another byte the name is %q, %v; it was %q", again, err, name)
			}
		}
	})
}
