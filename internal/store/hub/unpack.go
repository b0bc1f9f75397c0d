package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"
)

// maxUnpackers limits the CPUs that one snapshot on its way uses.
const maxUnpackers = 4

// unpack writes the content of a blob of frames, and verifies it. It skips zeros: w is empty. r must end with the
// last frame. Several frames are unpacked at once, but w gets one write at a time, in any order. After an error some
// frames behind the wrong one may be in w.
func unpack(ctx context.Context, t *Table, r io.Reader, w io.WriterAt) error {
	head := make([]byte, len(framesHead))
	if _, err := io.ReadFull(r, head); err != nil || !bytes.Equal(head, framesHead) {
		return invalid("a blob of frames is none")
	}
	if len(t.Frames) > 0 {
		t.Chunk(0) // computes the offsets, which concurrent readers use
	}
	n := min(maxUnpackers, runtime.GOMAXPROCS(0), max(1, len(t.Frames)))
	u := unpacking{table: t, to: w, jobs: make(chan frame, n), free: make(chan []byte, 2*n)}
	for range cap(u.free) {
		u.free <- nil // allocated when it is used
	}
	all, ctx := errgroup.WithContext(ctx)
	for range n {
		all.Go(func() error { return u.work(ctx) })
	}
	all.Go(func() error {
		defer close(u.jobs)
		return u.read(ctx, r)
	})
	if err := all.Wait(); err != nil {
		return err
	}
	if n, err := io.ReadFull(r, head[:1]); n > 0 {
		return invalid("a blob of frames goes on after its last frame")
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// frame is a packed frame.
type frame struct {
	i      int
	packed []byte // of a buffer
}

type unpacking struct {
	table *Table
	jobs  chan frame
	free  chan []byte // buffers

	mu sync.Mutex // held for a write
	to io.WriterAt
}

// read reads the frames in their order.
func (u *unpacking) read(ctx context.Context, r io.Reader) error {
	for i, f := range u.table.Frames {
		var buf []byte
		select {
		case buf = <-u.free:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if buf == nil {
			buf = make([]byte, maxFrame)
		}
		if _, err := io.ReadFull(r, buf[:f.Bytes]); err != nil {
			return fmt.Errorf("%w: read frame %d: %w", ErrInvalid, i, err)
		}
		select {
		case u.jobs <- frame{i, buf[:f.Bytes]}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// work unpacks frames until there are no more.
func (u *unpacking) work(ctx context.Context) error {
	o, err := NewOpener()
	if err != nil {
		return err
	}
	defer o.Close()
	for f := range u.jobs {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b, err := o.Open(u.table, f.i, f.packed)
		if err != nil {
			return err
		}
		if len(f.packed) > 0 {
			if err := u.write(b, u.table.Chunk(f.i).Offset); err != nil {
				return err
			}
		}
		u.free <- f.packed[:cap(f.packed)] // has room: it was taken from there
	}
	return nil
}

func (u *unpacking) write(b []byte, at int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, err := u.to.WriteAt(b, at)
	return err
}
