package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/store/hub"
)

// attempts without progress after which a blob is given up.
const attempts = 6

// errStalled is the cause of the end of a request that sends no data.
var errStalled = errors.New("no data arrived")

// open returns a reader of a blob, which asks another peer when one fails.
func (s *Snapshot) open(d hub.Descriptor) io.ReadCloser { return &blob{s: s, d: d} }

// blob reads one blob from any of the peers.
type blob struct {
	s    *Snapshot
	d    hub.Descriptor
	at   int64
	body io.ReadCloser // nil between requests
	stop context.CancelCauseFunc
	idle *time.Timer
	fail int // failures without progress
}

// Read implements io.Reader.
func (b *blob) Read(p []byte) (int, error) {
	for {
		if b.at >= b.d.Size {
			return 0, io.EOF
		}
		if b.body == nil {
			if err := b.request(); err != nil {
				if err = b.next(err); err != nil {
					return 0, err
				}
				continue
			}
		}
		n, err := b.body.Read(p[:min(int64(len(p)), b.d.Size-b.at)])
		b.idle.Reset(b.s.c.cfg.Stall)
		b.at += int64(n)
		if n > 0 {
			b.fail = 0
			b.s.c.bytes.Add(int64(n))
		}
		if err != nil {
			b.end()
			if b.at < b.d.Size {
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				if err = b.next(fmt.Errorf("peer %s: %w", b.s.peers[b.s.current].url.Host, err)); err != nil {
					return n, err
				}
			}
		}
		if n > 0 {
			return n, nil
		}
	}
}

// request begins or continues the blob at the current peer.
func (b *blob) request() error {
	ctx, stop := context.WithCancelCause(b.s.ctx)
	p := b.s.peers[b.s.current]
	resp, err := b.s.get(ctx, p, b.d.Digest, b.at)
	if err != nil {
		stop(nil)
		return err
	}
	if b.at > 0 && !begins(resp, b.at) || b.at == 0 && resp.ContentLength >= 0 && resp.ContentLength != b.d.Size {
		resp.Body.Close()
		stop(nil)
		return fmt.Errorf("peer %s sent another part of a blob", p.url.Host)
	}
	b.body, b.stop = resp.Body, stop
	b.idle = time.AfterFunc(b.s.c.cfg.Stall, func() { stop(errStalled) })
	return nil
}

// begins reports whether an answer begins at an offset.
func begins(resp *http.Response, at int64) bool {
	first, _, ok := strings.Cut(strings.TrimPrefix(resp.Header.Get("Content-Range"), "bytes "), "-")
	n, err := strconv.ParseInt(first, 10, 64)
	return ok && err == nil && n == at
}

// next chooses the peer for another request, or returns the error that ends the blob.
func (b *blob) next(err error) error {
	s := b.s
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	if b.fail++; b.fail >= attempts {
		return fmt.Errorf("%w (after %d attempts)", err, b.fail)
	}
	if !s.alone {
		s.current = (s.current + 1) % len(s.peers)
	}
	if !s.alone && b.fail < len(s.peers) {
		return nil // a peer that was not asked yet
	}
	select {
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-time.After(s.c.cfg.Wait << min(b.fail-1, 6)):
		return nil
	}
}

func (b *blob) end() {
	if b.body != nil {
		b.idle.Stop()
		b.body.Close()
		b.stop(nil)
		b.body = nil
	}
}

// Close ends the request.
func (b *blob) Close() error {
	b.end()
	return nil
}
