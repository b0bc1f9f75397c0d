package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Parts are the sizes of the parts of some content.
type Parts struct{ Head, Body, Tail int64 }

// packer packs content into frames. Equal content gives equal bytes.
type packer struct {
	zstd    *zstd.Encoder
	secrets [][]byte
	overlap int // bytes of the chunk before that are searched again
}

func newPacker(secrets []string) (*packer, error) {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true))
	if err != nil {
		return nil, err
	}
	p := &packer{zstd: e}
	for _, s := range secrets {
		if s != "" {
			p.secrets = append(p.secrets, []byte(s))
			p.overlap = max(p.overlap, len(s)-1)
		}
	}
	return p, nil
}

func (p *packer) close() { p.zstd.Close() }

// pack writes the frames of some content, and returns their table. each is called with the bytes of content done;
// an error from it ends the packing.
func (p *packer) pack(ctx context.Context, r io.ReaderAt, of Parts, w io.Writer,
	each func(int64) error) (*Table, error) {
	t := &Table{Head: of.Head, Body: of.Body, Tail: of.Tail}
	if t.Content() > MaxContent {
		return nil, fmt.Errorf("%d bytes of content, want at most %d", t.Content(), int64(MaxContent))
	}
	if _, err := w.Write(framesHead); err != nil {
		return nil, err
	}
	t.Frames = make([]Frame, t.count())
	buf := make([]byte, p.overlap+ChunkBytes) // the end of the last chunk, then this one
	var packed []byte
	for i := range t.Frames {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c := t.Chunk(i)
		b := buf[p.overlap:][:c.Length]
		if n, err := r.ReadAt(b, c.Offset); n < len(b) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("read %d bytes at %d: %w", len(b), c.Offset, err)
		}
		zero := isZero(b)
		f := Frame{Sum: sumOf(b, zero)}
		if !zero {
			if err := p.search(buf[:p.overlap+len(b)]); err != nil {
				return nil, err
			}
			packed = p.zstd.EncodeAll(b, packed[:0])
			if f.Bytes = uint32(len(packed)); f.Bytes > maxFrame {
				return nil, fmt.Errorf("a frame of %d bytes: want at most %d", f.Bytes, maxFrame)
			}
			if _, err := w.Write(packed); err != nil {
				return nil, err
			}
		}
		copy(buf, buf[len(b):][:p.overlap])
		t.Frames[i] = f
		if err := each(c.Offset + c.Length); err != nil {
			return nil, err
		}
	}
	t.starts = nil // they were computed without the sizes
	return t, nil
}

func (p *packer) search(b []byte) error {
	for _, s := range p.secrets {
		if bytes.Contains(b, s) {
			return ErrSecret
		}
	}
	return nil
}

// bodySums returns the digests of the chunks of the second part.
func (t *Table) bodySums() [][sha256.Size]byte {
	out := make([][sha256.Size]byte, chunksOf(t.Body))
	first := chunksOf(t.Head)
	for i := range out {
		out[i] = t.Frames[first+int64(i)].Sum
	}
	return out
}
