package hub

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/iotest"
)

// packed returns the frames of some content, a quarter of which is zeros, with their table.
func packed(t testing.TB, size int) (content, frames []byte, table *Table) {
	t.Helper()
	content = make([]byte, size)
	r := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < size; i += ChunkBytes {
		if i/ChunkBytes%4 == 1 {
			continue
		}
		for j := i; j < min(size, i+ChunkBytes/2); j++ { // the rest of the chunk compresses
			content[j] = byte(r.Uint32())
		}
	}
	p, err := newPacker(nil)
	must(t, err)
	defer p.close()
	var b bytes.Buffer
	table, err = p.pack(t.Context(), bytes.NewReader(content), Parts{Body: int64(size)}, &b, func(int64) error { return nil })
	must(t, err)
	return content, b.Bytes(), table
}

// memory is content in memory. It counts writes at the same time.
type memory struct {
	b           []byte
	busy, clash atomic.Int32
	fail        error
	failAt      int64
}

func (m *memory) WriteAt(b []byte, at int64) (int, error) {
	if m.busy.Add(1) > 1 {
		m.clash.Add(1)
	}
	defer m.busy.Add(-1)
	if m.fail != nil && at >= m.failAt {
		return 0, m.fail
	}
	return copy(m.b[at:], b), nil
}

func TestUnpack(t *testing.T) {
	content, frames, table := packed(t, 40*ChunkBytes+100)
	to := &memory{b: make([]byte, len(content))}
	must(t, unpack(t.Context(), table, iotest.HalfReader(bytes.NewReader(frames)), to))
	if !bytes.Equal(to.b, content) {
		t.Error("the content is another one")
	}
	if to.clash.Load() != 0 {
		t.Error("two writes at the same time")
	}
}

// Each way to end early ends, with its own error.
func TestUnpackEndsEarly(t *testing.T) {
	content, frames, table := packed(t, 40*ChunkBytes)
	full := errors.New("the disk is full")
	ended, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client has gone")
	cancel(gone)
	wrong := bytes.Clone(frames)
	wrong[len(wrong)/2] ^= 1
	for name, c := range map[string]struct {
		ctx    context.Context
		frames []byte
		to     *memory
		want   error
	}{
		"a full disk":     {t.Context(), frames, &memory{fail: full, failAt: 20 * ChunkBytes}, full},
		"cancelled":       {ended, frames, &memory{}, gone},
		"cut off":         {t.Context(), frames[:len(frames)/2], &memory{}, ErrInvalid},
		"a wrong frame":   {t.Context(), wrong, &memory{}, ErrInvalid},
		"too long":        {t.Context(), append(bytes.Clone(frames), 0), &memory{}, ErrInvalid},
		"another blob":    {t.Context(), frames[1:], &memory{}, ErrInvalid},
		"frames in swaps": {t.Context(), swapped(frames, table), &memory{}, ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			c.to.b = make([]byte, len(content))
			if err := unpack(c.ctx, table, bytes.NewReader(c.frames), c.to); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// swapped exchanges the first two frames with content.
func swapped(frames []byte, t *Table) []byte {
	a, b := t.Chunk(0), t.Chunk(2)
	out := bytes.Clone(frames[:a.At])
	out = append(out, frames[b.At:b.At+b.Bytes]...)
	out = append(out, frames[a.At:a.At+a.Bytes]...)
	return append(out, frames[b.At+b.Bytes:]...)
}

func BenchmarkUnpack(b *testing.B) {
	content, frames, table := packed(b, 64<<20)
	to := &memory{b: make([]byte, len(content))}
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		must(b, unpack(b.Context(), table, bytes.NewReader(frames), to))
	}
}
