package guard

import (
	"encoding/binary"
	"io"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto"
)

// Frame flags of Connect's streams.
const (
	flagCompressed = 1
	flagEnd        = 2
)

// headBytes is the size of a frame's head, which holds flags and length.
const headBytes = 5

// endGrace is how long an answer may stay open after the frame that ends its stream.
const endGrace = time.Second

// frames is the body of a stream. It passes on frames only in the correct order: plain messages of
// limited size, then one frame that ends the stream, then no bytes.
type frames struct {
	body  io.ReadCloser
	head  [headBytes]byte
	have  int // received bytes of head
	left  int // outstanding bytes of the frame's message
	ended bool
	grace *time.Timer // closes the body; nil until the stream has ended
}

func newFrames(body io.ReadCloser) *frames { return &frames{body: body} }

// Read implements io.Reader.
func (f *frames) Read(p []byte) (int, error) {
	if f.ended && f.left == 0 && f.grace == nil {
		f.grace = time.AfterFunc(endGrace, func() { f.body.Close() })
	}
	n, err := f.body.Read(p)
	if bad := f.take(p[:n]); bad != nil {
		return 0, bad
	}
	return n, err
}

// take checks the next bytes of the stream.
func (f *frames) take(b []byte) error {
	for len(b) > 0 {
		if f.left > 0 {
			n := min(f.left, len(b))
			f.left -= n
			b = b[n:]
			continue
		}
		if f.ended {
			return violation("bytes after the end of a stream")
		}
		n := copy(f.head[f.have:], b)
		f.have += n
		b = b[n:]
		if f.have < headBytes {
			return nil
		}
		f.have = 0
		if err := f.begin(f.head[0], binary.BigEndian.Uint32(f.head[1:])); err != nil {
			return err
		}
	}
	return nil
}

// begin checks a frame's head.
func (f *frames) begin(flags byte, size uint32) error {
	most := uint32(agentproto.MaxMessageBytes)
	switch {
	case flags&flagCompressed != 0:
		return violation("a compressed message, which was not asked for")
	case flags == flagEnd:
		f.ended, most = true, maxRefusal
	case flags != 0:
		return violation("a message with flags %#x", flags)
	}
	if size > most {
		return violation("a message of %d bytes, want at most %d", size, most)
	}
	f.left = int(size)
	return nil
}

// Close implements io.Closer.
func (f *frames) Close() error {
	if f.grace != nil {
		f.grace.Stop()
	}
	return f.body.Close()
}
