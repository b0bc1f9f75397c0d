package httpapi

import (
	"net/http"
	"sync"
	"time"
)

// writePatience is the time for a client to take one piece of an answer.
const writePatience = 30 * time.Second

// writePiece is the number of bytes after which the deadline of a write moves.
const writePiece = 64 << 10

// paced writes with a deadline that moves with each piece. Between writes there is none, so that
// a stream may be idle for as long as it likes.
type paced struct {
	http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration

	mu   sync.Mutex // guards what follows
	over bool       // a deadline of the past ended the answer, and stays
}

// SetWriteDeadline is called by http.ResponseController. A deadline of the past, as the end of a key sets it, is the
// last: a write that begins or ends at that moment does not take it back.
func (p *paced) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return nil
	}
	p.over = !t.IsZero() && !t.After(time.Now())
	return p.control.SetWriteDeadline(t)
}

func (p *paced) Write(b []byte) (n int, err error) {
	defer p.done()
	for {
		p.begin()
		piece := b[n:min(len(b), n+writePiece)]
		wrote, err := p.ResponseWriter.Write(piece)
		n += wrote
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

// FlushError is called by http.ResponseController.
func (p *paced) FlushError() error {
	defer p.done()
	p.begin()
	return p.control.Flush()
}

func (p *paced) begin() { _ = p.SetWriteDeadline(time.Now().Add(p.patience)) }
func (p *paced) done()  { _ = p.SetWriteDeadline(time.Time{}) }

// Unwrap is called by http.ResponseController.
func (p *paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// last leaves a deadline for what net/http still has to send after the handler of HTTP/1.
func (p *paced) last(r *http.Request) {
	if r.ProtoMajor == 1 {
		p.begin()
	}
}
