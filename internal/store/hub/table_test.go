package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/klauspost/compress/zstd"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The bytes of a blob and its table are a format (docs/inside/formats/hub.md).
func TestGolden(t *testing.T) {
	content := make([]byte, 4096+3*ChunkBytes+64)
	copy(content, "the head")
	copy(content[4096+5:], "the first chunk")
	copy(content[4096+2*ChunkBytes:], "the third chunk")
	copy(content[len(content)-64:], "the tail")
	p, err := newPacker(nil)
	must(t, err)
	defer p.close()
	var frames bytes.Buffer
	table, err := p.pack(context.Background(), bytes.NewReader(content), Parts{4096, 3 * ChunkBytes, 64}, &frames,
		func(int64) error { return nil })
	must(t, err)
	for name, got := range map[string][]byte{"frames-v1": frames.Bytes(), "table-v1": table.Encode()} {
		path := "testdata/" + name
		if *update {
			must(t, os.MkdirAll("testdata", 0o755))
			must(t, os.WriteFile(path, got, 0o644))
		}
		want, err := os.ReadFile(path)
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs: %d bytes, want %d", path, len(got), len(want))
		}
	}
	raw, err := os.ReadFile("testdata/table-v1")
	must(t, err)
	read, err := DecodeTable(raw)
	must(t, err)
	packed, err := os.ReadFile("testdata/frames-v1")
	must(t, err)
	s := &State{}
	must(t, unpack(t.Context(), read, bytes.NewReader(packed), s))
	s.grow(int64(len(content)))
	if !bytes.Equal(s.Bytes, content) {
		t.Error("the golden files have other content")
	}
}

// A frame that unpacks to more than it declares, or declares more than a chunk, is refused.
func TestBombs(t *testing.T) {
	big := make([]byte, 64<<20)
	e, err := zstd.NewWriter(nil)
	must(t, err)
	o, err := NewOpener()
	must(t, err)
	defer o.Close()
	chunk := bytes.Repeat([]byte{7}, ChunkBytes)
	sum := sha256.Sum256(chunk)
	two := e.EncodeAll(big, e.EncodeAll(chunk, nil)) // one good frame, then another
	for name, packed := range map[string][]byte{
		"a large frame": e.EncodeAll(big, nil), "a second frame": two, "no frame": []byte("hello"), "a cut one": two[:12],
	} {
		table := &Table{Body: ChunkBytes, Frames: []Frame{{Bytes: uint32(len(packed)), Sum: sum}}}
		if _, err := o.Open(table, 0, packed); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzTable(f *testing.F) {
	f.Add((&Table{Head: 1, Body: ChunkBytes + 1, Tail: 3, Frames: make([]Frame, 4)}).Encode(), []byte("x"))
	o, err := NewOpener()
	must(f, err)
	f.Fuzz(func(t *testing.T, b, packed []byte) {
		table, err := DecodeTable(b)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if !bytes.Equal(table.Encode(), b) {
			t.Fatal("a table has two encodings")
		}
		end := int64(0)
		for i := range table.Frames {
			c := table.Chunk(i)
			if c.Offset != end || c.Length <= 0 || c.Length > ChunkBytes {
				t.Fatalf("chunk %d: %+v", i, c)
			}
			end += c.Length
			if _, err := o.Open(table, i, packed); err != nil && !errors.Is(err, ErrInvalid) {
				t.Fatal(err)
			}
		}
		if end != table.Content() {
			t.Fatalf("chunks of %d bytes, want %d", end, table.Content())
		}
	})
}

func FuzzArtifact(f *testing.F) {
	f.Add([]byte(`{"schemaVersion":2,"artifactType":"application/vnd.forkd.snapshot.v1","config":{"mediaType":"x"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ParseArtifact(b)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		for _, d := range a.Blobs() {
			if d.Size < 0 || len(d.Hex()) != 64 {
				t.Fatal(d)
			}
		}
	})
}
