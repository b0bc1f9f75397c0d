package network

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/net/netd/nettest"
)

// Addresses of the far side: example.com, another host, and a host denied by the ceiling.
const (
	web       = "93.184.216.34"
	other     = "93.184.216.35"
	forbidden = "151.101.1.69"
	web6      = "2606:2800:220:1:248:1893:25c8:1946"
)

// Ports of the far side, in addition to 80 and 443.
const (
	echoPort = "7"
	handPort = "9000" // the test serves its connections
	bulkPort = "9001"
)

// zones are the answers of the far DNS, always with a TTL of 0.
var zones = nettest.Zones{
	"example.com":       {netip.MustParseAddr(web)},
	"other.example.com": {netip.MustParseAddr(other)},
	"six.example.com":   {netip.MustParseAddr(web6)},
	"meta.example.com":  {netip.MustParseAddr("169.254.169.254")},
	"inner.example.com": {netip.MustParseAddr("10.0.0.1")},
	"home.example.com":  {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
	"map.example.com":   {netip.MustParseAddr("::ffff:10.0.0.1")},
	debHost:             {netip.MustParseAddr(mirrorAddr)},
	pypiHost:            {netip.MustParseAddr(mirrorAddr)},
	npmHost:             {netip.MustParseAddr(mirrorAddr)},
	strangeHost:         {netip.MustParseAddr(mirrorAddr)},
	bucketHost:          {netip.MustParseAddr(bucketAddr)},
	"impostor.test":     {netip.MustParseAddr(other)}, // its certificate is for other names
}

// far is the internet, with a record of its requests.
type far struct {
	certificate *x509.Certificate
	resolvConf  string
	asked       func() []string // names requested from DNS
	conns       chan net.Conn   // connections to handPort
	mirrors     trusted
	relay       *relay // a proxy
	bucket      *storage

	mu       sync.Mutex
	requests []request
}

// pem returns the certificate of all its servers, which is its own CA.
func (f *far) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.certificate.Raw})
}

// request is an HTTP request received by a server of the far side.
type request struct {
	by            string // the sender, from the query
	at, host      string // the page served, and the name requested
	proto         string
	secure        bool
	authorization []string
}

func newFar(t testing.TB) *far {
	in := nettest.New(t)
	f := &far{conns: make(chan net.Conn, 16), mirrors: serveMirrors(t, in), relay: new(relay)}
	accept(in.Listen(t, net.JoinHostPort(proxyAddr, proxyPort)), f.relay.serve)
	f.resolvConf, f.asked = in.DNS(t, zones)
	for addr, text := range map[string]string{web: "the web", other: "another host", forbidden: "forbidden"} {
		in.HTTP(t, net.JoinHostPort(addr, "80"), false, f.page(text))
		s := in.HTTP(t, net.JoinHostPort(addr, "443"), true, f.page(text))
		f.certificate = s.Certificate()
		in.Echo(t, net.JoinHostPort(addr, echoPort))
	}
	f.bucket = newStorage(map[string]string{"/models/m": "weights"})
	in.HTTP(t, net.JoinHostPort(bucketAddr, "443"), true, f.bucket)
	in.HTTP(t, net.JoinHostPort(web6, "80"), false, f.page("the web"))
	in.Echo(t, net.JoinHostPort(web, "853"))
	accept(in.Listen(t, net.JoinHostPort(web, handPort)), func(c net.Conn) { f.conns <- c })
	accept(in.Listen(t, net.JoinHostPort(web, bulkPort)), bulk)
	return f
}

// page returns a handler that answers with a text and never with data of the request: a guest must
// not learn its own secret.
func (f *far) page(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.requests = append(f.requests, request{by: r.URL.Query().Get("by"), at: text, host: r.Host, proto: r.Proto,
			secure: r.TLS != nil, authorization: r.Header.Values("Authorization")})
		f.mu.Unlock()
		_, _ = io.WriteString(w, text)
	})
}

// wantRequest checks for one request from a sender to a page, with exactly these values of the
// header Authorization.
func (f *far) wantRequest(t *testing.T, by, at string, authorization ...string) {
	t.Helper()
	if err := f.request(by, at, authorization...); err != nil {
		t.Error(err)
	}
}

func (f *far) request(by, at string, authorization ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var got []request
	for _, r := range f.requests {
		if r.by == by {
			got = append(got, r)
		}
	}
	if len(got) != 1 || got[0].at != at || !slices.Equal(got[0].authorization, authorization) {
		return fmt.Errorf("requests by %q: %+v, want one to %q with %q", by, got, at, authorization)
	}
	return nil
}

// wantNoRequest checks that no server has received a request of a sender.
func (f *far) wantNoRequest(t *testing.T, by string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests {
		if r.by == by {
			t.Errorf("a request by %q came: %+v", by, r)
		}
	}
}

// accept serves connections until the listener is closed.
func accept(l net.Listener, serve func(net.Conn)) {
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
}

// conn returns the next connection to handPort. It is closed at the end of the test.
func (f *far) conn(t *testing.T) net.Conn {
	t.Helper()
	return next(t, f.conns)
}

func next(t *testing.T, conns <-chan net.Conn) net.Conn {
	t.Helper()
	select {
	case c := <-conns:
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
		return c
	case <-time.After(patience):
		t.Fatal("nobody has connected")
		return nil
	}
}

// bulk reads a number of bytes and returns their checksum, sends as many, and reports whether the
// guest's checksum of them is right.
func bulk(c net.Conn) {
	defer c.Close()
	var size uint64
	if binary.Read(c, binary.BigEndian, &size) != nil {
		return
	}
	up, down := sha256.New(), sha256.New()
	if _, err := io.CopyN(up, c, int64(size)); err != nil {
		return
	}
	if _, err := c.Write(up.Sum(nil)); err != nil {
		return
	}
	if _, err := io.CopyN(io.MultiWriter(c, down), &noise{}, int64(size)); err != nil {
		return
	}
	theirs := make([]byte, sha256.Size)
	if _, err := io.ReadFull(c, theirs); err != nil {
		return
	}
	verdict := "no"
	if string(theirs) == string(down.Sum(nil)) {
		verdict = "ok"
	}
	_, _ = io.WriteString(c, verdict)
}

// noise generates bytes with a verifiable order.
type noise struct{ words uint64 }

func (r *noise) Read(b []byte) (int, error) {
	n := len(b) &^ 7
	for i := 0; i < n; i += 8 {
		r.words++
		binary.LittleEndian.PutUint64(b[i:], r.words*0x9e3779b97f4a7c15)
	}
	return n, nil
}
