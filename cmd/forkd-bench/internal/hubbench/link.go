package hubbench

import (
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// link is a registry that answers over a link with a rate and a delay.
type link struct {
	direct, shaped string // addresses
	rate           int64  // bytes of a second, of all connections together; 0: no limit
	delay          time.Duration
	requests       atomic.Int64 // for blobs, over the link
	bytes          atomic.Int64 // of blobs, over the link
	sent           atomic.Int64 // to the direct address, of all requests

	mu   sync.Mutex
	free time.Time // when the link has sent all it has
	ends []io.Closer
}

// pieceBytes is the size of the pieces in which the link carries an answer. lag is the time by which a piece may be early
// or late without a loss: timers are not exact.
const (
	pieceBytes = 64 << 10
	lag        = 10 * time.Millisecond
)

// serve starts the registry, with its blobs in dir.
func serve(dir string, rate int64, delay time.Duration) (*link, error) {
	l := &link{rate: rate, delay: delay}
	h := registry.New(registry.Logger(log.New(io.Discard, "", 0)),
		registry.WithBlobHandler(registry.NewDiskBlobHandler(dir)))
	var err error
	if l.direct, err = l.listen(l.received(h), false); err == nil {
		l.shaped, err = l.listen(l.count(h, dir), true)
	}
	if err != nil {
		l.close()
	}
	return l, err
}

func (l *link) listen(h http.Handler, shaped bool) (string, error) {
	n, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	at := n.Addr().String()
	if shaped {
		n = slow{n, l}
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	l.ends = append(l.ends, s)
	go func() { _ = s.Serve(n) }() // until close
	return at, nil
}

func (l *link) close() {
	for _, c := range l.ends {
		c.Close()
	}
}

// count serves and counts blobs. The registry itself would read a whole blob for each of its ranges.
func (l *link) count(h http.Handler, dir string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, hex, blob := strings.Cut(r.URL.Path, "/blobs/sha256:")
		if r.Method != http.MethodGet || !blob {
			h.ServeHTTP(w, r)
			return
		}
		l.requests.Add(1)
		f, err := os.OpenInRoot(dir, "sha256/"+hex)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		defer f.Close()
		http.ServeContent(counted{w, &l.bytes}, r, "", time.Time{}, f)
	})
}

type counted struct {
	http.ResponseWriter
	n *atomic.Int64
}

// Write implements http.ResponseWriter.
func (c counted) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return c.ResponseWriter.Write(b)
}

// slow is a listener at the end of the link.
type slow struct {
	net.Listener
	link *link
}

// Accept implements net.Listener.
func (s slow) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newConn(c, s.link), nil
}

// conn delivers what it is given after the delay of the link, and at its rate.
type conn struct {
	net.Conn
	link  *link
	queue chan piece
	ended chan struct{}
	once  sync.Once
}

type piece struct {
	b   []byte
	due time.Time
}

func newConn(c net.Conn, l *link) *conn {
	s := &conn{Conn: c, link: l, queue: make(chan piece, 256), ended: make(chan struct{})}
	go s.deliver()
	return s
}

// Write implements net.Conn. It returns when the link has taken all of b.
func (s *conn) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		p := append([]byte(nil), b[:min(pieceBytes, len(b))]...)
		due := s.link.turn(len(p))
		select {
		case s.queue <- piece{p, due}:
		case <-s.ended:
			return n, net.ErrClosed
		}
		n, b = n+len(p), b[len(p):]
		if early := time.Until(due.Add(-s.link.delay)); early > lag {
			time.Sleep(early)
		}
	}
	return n, nil
}

// turn returns when a piece of n bytes arrives. Pieces of all connections follow one another.
func (l *link) turn(n int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if begin := time.Now().Add(-lag); l.free.Before(begin) {
		l.free = begin
	}
	if l.rate > 0 {
		l.free = l.free.Add(time.Duration(float64(n) / float64(l.rate) * float64(time.Second)))
	}
	return l.free.Add(l.delay)
}

func (s *conn) deliver() {
	for {
		select {
		case p := <-s.queue:
			time.Sleep(time.Until(p.due))
			if _, err := s.Conn.Write(p.b); err != nil {
				s.Close()
				return
			}
		case <-s.ended:
			return
		}
	}
}

// Close implements net.Conn.
func (s *conn) Close() error {
	s.once.Do(func() { close(s.ended) })
	return s.Conn.Close()
}
