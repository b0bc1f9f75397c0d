package partial

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/layer"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// blob is a registry's blob of frames, with its table.
type blob struct {
	content []byte
	table   *hub.Table
	frames  []byte
	desc    hub.Descriptor
}

// newBlob packs noise in three parts. Chunk 3 of the body is zeros.
func newBlob(t testing.TB, body int) *blob {
	t.Helper()
	r := rand.NewChaCha8([32]byte{1})
	content := make([]byte, 4096+body+100)
	_, _ = r.Read(content)
	for i := 4096 + 3*hub.ChunkBytes; i < min(4096+4*hub.ChunkBytes, 4096+body); i++ {
		content[i] = 0
	}
	b := &blob{content: content, table: &hub.Table{Head: 4096, Body: int64(body), Tail: 100}}
	enc, err := zstd.NewWriter(nil, zstd.WithSingleSegment(true))
	must(t, err)
	b.frames = []byte("\x50\x2a\x4d\x18\x08\x00\x00\x00FORKDFRM")
	at := 0
	for _, part := range []int{4096, body, 100} {
		for done := 0; done < part; done += hub.ChunkBytes {
			c := content[at+done : at+min(done+hub.ChunkBytes, part)]
			f := hub.Frame{Sum: sha256.Sum256(c)}
			if bytes.Count(c, []byte{0}) != len(c) {
				packed := enc.EncodeAll(c, nil)
				f.Bytes = uint32(len(packed))
				b.frames = append(b.frames, packed...)
			}
			b.table.Frames = append(b.table.Frames, f)
		}
		at += part
	}
	sum := sha256.Sum256(b.frames)
	b.desc = hub.Descriptor{MediaType: hub.FramesType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(b.frames))}
	return b
}

// registry is a Source over a blob with faults.
type registry struct {
	mu         sync.Mutex
	b          *blob
	down       error
	mangle     func(at int64, b []byte) []byte // may be nil
	requests   int
	bytes      int64
	distrusted int
	gate       chan struct{} // each request waits for it; may be nil
}

func (r *registry) Range(ctx context.Context, _ hub.Descriptor, at, n int64) (io.ReadCloser, error) {
	r.mu.Lock()
	gate := r.gate
	r.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	if r.down != nil {
		return nil, r.down
	}
	out := bytes.Clone(r.b.frames[at : at+n])
	r.bytes += n
	if r.mangle != nil {
		out = r.mangle(at, out)
	}
	return io.NopCloser(bytes.NewReader(out)), nil
}

func (r *registry) Distrust() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.distrusted++
}

func (r *registry) set(down error, mangle func(int64, []byte) []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down, r.mangle = down, mangle
}

func (r *registry) count() (requests int, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests, r.bytes
}

var errDown = errors.New("no route to the registry")

type bench struct {
	*registry
	root string
	id   layer.ID
	opt  Options
}

func newBench(t testing.TB, body int) *bench {
	t.Helper()
	r := &registry{b: newBlob(t, body)}
	b := &bench{registry: r, root: t.TempDir(), id: layer.NewID()}
	b.opt = Options{Source: r, Limit: time.Minute, Wait: time.Millisecond, MaxWait: 4 * time.Millisecond}
	must(t, Create(b.root, b.id, Spec{Name: "layer/" + b.id.String(), Frames: r.b.desc}, r.b.table))
	return b
}

func (b *bench) open(t testing.TB) *File {
	t.Helper()
	f, err := Open(b.root, b.id, b.opt)
	must(t, err)
	t.Cleanup(func() { f.data.Close() })
	return f
}

// wantRange compares a range of the file with the content.
func (b *bench) wantRange(t testing.TB, f *File, at, n int) {
	t.Helper()
	p := make([]byte, n)
	got, err := f.ReadAt(t.Context(), p, int64(at))
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatalf("read %d at %d: %v", n, at, err)
	}
	if want := b.b.content[at:min(at+n, len(b.b.content))]; !bytes.Equal(p[:got], want) {
		t.Errorf("%d bytes at %d are others, got %d bytes", n, at, got)
	}
}
