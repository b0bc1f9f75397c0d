package iodeadline

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Limits are the longest times the daemon waits.
type Limits struct {
	Read  time.Duration // for the next bytes of a request's body
	Write time.Duration // for a client to read one piece of an answer
	Rest  time.Duration // for the rest of a body that no handler reads
}

// piece is the number of bytes after which the deadline of a write moves.
const piece = 64 << 10

// Writer writes an answer with a moving deadline, and owns the deadlines of its request.
type Writer struct {
	http.ResponseWriter
	control       *http.ResponseController
	limits        Limits
	reads, writes bound
	body          *Body // nil: the request has no body
	http1         bool
	rpc           bool // the body is a stream of messages, and may be idle between them

	duplex, begun, hijacked atomic.Bool
	silent                  atomic.Pointer[SilentError]
}

type writerKey struct{}

// New returns the Writer of an answer, and the request with a body the Writer's deadlines apply to.
func New(w http.ResponseWriter, r *http.Request, l Limits) (*Writer, *http.Request) {
	kind := r.Header.Get("Content-Type")
	o := &Writer{ResponseWriter: w, control: http.NewResponseController(w), limits: l, http1: r.ProtoMajor == 1,
		rpc: strings.HasPrefix(kind, "application/connect+") || strings.HasPrefix(kind, "application/grpc")}
	o.reads.set, o.writes.set = o.control.SetReadDeadline, o.control.SetWriteDeadline
	o.writes.clear() // the last request of the connection has left one
	r = r.WithContext(context.WithValue(r.Context(), writerKey{}, o))
	if r.Body != nil && r.Body != http.NoBody {
		o.body = &Body{ReadCloser: r.Body, out: o}
		r.Body = o.body
	}
	return o, r
}

// SetReadDeadline implements the interface of http.ResponseController. A deadline in the past is
// final. One in the future is for a body that is still to come. Without such a body it would end the request: net/http
// then reads the connection to notice that the client leaves, and takes a timeout for that.
func (o *Writer) SetReadDeadline(t time.Time) error {
	if !o.body.left() && t.After(time.Now()) {
		return nil
	}
	return o.reads.limit(t)
}

// SetWriteDeadline implements the interface of http.ResponseController. A deadline in the past is
// final.
func (o *Writer) SetWriteDeadline(t time.Time) error { return o.writes.limit(t) }

// EnableFullDuplex implements the interface of http.ResponseController, for handlers that answer
// while they read. After the beginning of the answer, the client may be silent without limit. A
// client that sends messages may be silent from the start.
func (o *Writer) EnableFullDuplex() error {
	o.duplex.Store(true)
	if o.rpc || o.begun.Load() {
		o.reads.free()
	}
	return o.control.EnableFullDuplex()
}

// WriteHeader sends a status.
func (o *Writer) WriteHeader(status int) {
	if status >= http.StatusOK {
		o.begin()
	}
	o.ResponseWriter.WriteHeader(status)
}

func (o *Writer) begin() {
	if !o.begun.Swap(true) && o.duplex.Load() {
		o.reads.free()
	}
}

func (o *Writer) Write(b []byte) (int, error) {
	o.begin()
	return o.write(o.ResponseWriter.Write, b)
}

// write writes piece by piece.
func (o *Writer) write(to func([]byte) (int, error), b []byte) (n int, err error) {
	defer o.wait()()
	for {
		wrote, err := to(b[n:min(len(b), n+piece)])
		n += wrote
		if err != nil || n == len(b) {
			return n, err
		}
		o.writes.move(time.Now().Add(o.limits.Write))
	}
}

// wait begins the time for one piece and returns a function that ends it. Over HTTP/1 net/http
// reads the rest of a request before it writes, unless full duplex is enabled.
func (o *Writer) wait() func() {
	now := time.Now()
	discards := o.http1 && !o.duplex.Load() && o.body.left()
	if discards {
		o.reads.move(o.restBy(now))
	}
	o.writes.move(now.Add(o.limits.Write))
	return func() {
		o.writes.move(time.Time{})
		if discards {
			o.reads.move(time.Time{})
		}
	}
}

// restBy returns the deadline for the rest of a body. A body that has failed has no rest.
func (o *Writer) restBy(now time.Time) time.Time {
	if o.body.failed.Load() {
		return time.Unix(1, 0)
	}
	return now.Add(o.limits.Rest)
}

// FlushError implements the interface of http.ResponseController.
func (o *Writer) FlushError() error {
	o.begin()
	defer o.wait()()
	return o.control.Flush()
}

// Unwrap implements the interface of http.ResponseController.
func (o *Writer) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// Hijack takes over the connection. Writes keep the same deadlines. Reads have no deadline.
func (o *Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	raw, rest, err := o.control.Hijack()
	if err != nil {
		return nil, nil, err
	}
	o.hijacked.Store(true)
	o.reads.clear()
	o.writes.clear()
	c := &Conn{Conn: raw, out: o}
	rest.Writer.Reset(c)
	return c, rest, nil
}

// Finish sets the deadlines for data net/http still reads and sends after the handler has returned.
// Later changes have no effect, because a proxy's goroutine may still read the body. Finish returns
// the deadline of reads, or zero if all is read. Over HTTP/1 net/http clears that deadline when it
// ends a read in progress, so the connection must keep it.
func (o *Writer) Finish() (reads time.Time) {
	now := time.Now()
	var writes time.Time
	if !o.hijacked.Load() {
		writes = now.Add(o.limits.Write)
		if o.http1 && o.body.left() {
			reads = o.restBy(now)
		}
	}
	o.reads.finish(reads)
	o.writes.finish(writes)
	return reads
}
