package hub

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
)

func TestASnapshotTravels(t *testing.T) {
	a, b := newHost(t, store.Options{}), newHost(t, store.Options{})
	a.write(t, "one", noise(2, 300<<10))
	first, err := a.export(t, "one")
	must(t, err)
	must(t, b.receive(t, "two", stream(t, layout(t, first), false)))
	must(t, b.snapshots.Hash(t.Context(), "two", nil))
	r, err := b.snapshots.Verify(t.Context(), "two")
	must(t, err)
	if len(r.Damaged) > 0 {
		t.Error(r.Damaged)
	}
	got, err := b.snapshots.Open("two")
	must(t, err)
	defer got.Close()
	want, err := a.snapshots.Open("one")
	must(t, err)
	defer want.Close()
	for i, l := range want.Memory.Layers() {
		x, err := os.ReadFile(l.File().Name())
		must(t, err)
		y, err := os.ReadFile(b.layers.Path(got.Memory.Layers()[i].ID))
		must(t, err)
		if !bytes.Equal(x, y) {
			t.Errorf("layer %s differs", l.ID)
		}
	}
	m := got.Manifest
	if m.Owner != "" || m.Branch != nil || m.Memory.Own != 2 || m.Image.Name != "python" {
		t.Errorf("%+v", m)
	}
	root, err := os.ReadFile(filepath.Join(b.snapshots.Dir("two"), "disk0"))
	must(t, err)
	if len(root) != 1<<20 || string(root[300<<10:][:11]) != "a root disk" {
		t.Error("the root disk differs")
	}
	// A second host sends the same bytes, except for the tag.
	must(t, b.receive(t, "one", stream(t, layout(t, first), false)))
	again, err := b.export(t, "one")
	must(t, err)
	if !bytes.Equal(first, again) {
		t.Error("a received snapshot is sent with other bytes")
	}
}

func TestAChainSharesItsBlobs(t *testing.T) {
	h := newHost(t, store.Options{})
	h.write(t, "base", nil)
	h.write(t, "above", noise(2, 300<<10))
	blobs := func(tag string) map[string]int64 {
		b, err := h.export(t, tag)
		must(t, err)
		out := map[string]int64{}
		for _, d := range layout(t, b).Artifact.Blobs() {
			out[d.Digest] = d.Size
		}
		return out
	}
	base, above := blobs("base"), blobs("above")
	fresh := int64(0)
	for digest, size := range above {
		if base[digest] == 0 {
			fresh += size
		}
	}
	if fresh > 310<<10 {
		t.Errorf("the second snapshot has %d new bytes", fresh)
	}
}

func TestARangeIsVerifiedAlone(t *testing.T) {
	h := newHost(t, store.Options{})
	h.write(t, "one", nil)
	b, err := h.export(t, "one")
	must(t, err)
	l := layout(t, b)
	parts, err := l.Artifact.Parts()
	must(t, err)
	p := parts[len(parts)-1]
	r, err := l.Blob(p.Table)
	must(t, err)
	raw, err := io.ReadAll(r)
	must(t, err)
	table, err := DecodeTable(raw)
	must(t, err)
	o, err := NewOpener()
	must(t, err)
	defer o.Close()
	c := table.Chunk(2) // after the header, the second chunk
	s := l.at[blobName(p.Frames)]
	packed := make([]byte, c.Bytes)
	_, err = l.file.ReadAt(packed, s.offset+c.At)
	must(t, err)
	got, err := o.Open(table, 2, packed)
	must(t, err)
	if c.Offset != layer.ContentOffset+ChunkBytes || !bytes.Equal(got, noise(1, 600<<10)[ChunkBytes:2*ChunkBytes]) {
		t.Errorf("a range at %d has other content", c.Offset)
	}
	packed[len(packed)/2] ^= 1
	if _, err := o.Open(table, 2, packed); !errors.Is(err, ErrInvalid) {
		t.Errorf("a changed frame: %v", err)
	}
}

func TestASecretIsNotSent(t *testing.T) {
	const secret = "0123456789abcdef-a-token-of-a-sandbox"
	for name, at := range map[string]int{"within a chunk": 5000, "across two chunks": ChunkBytes - 7} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, store.Options{})
			diff := noise(2, 2*ChunkBytes)
			copy(diff[at:], secret)
			h.write(t, "one", diff)
			b, err := h.export(t, "one", "another-token", secret)
			if !errors.Is(err, ErrSecret) || bytes.Contains(b, []byte(secret)) {
				t.Errorf("%v", err)
			}
			_, _, err = ReadExport(bytes.NewReader(b), func(_ Descriptor, r io.Reader) error {
				_, err := io.Copy(io.Discard, r)
				return err
			})
			var failed *Failure
			if !errors.As(err, &failed) || !strings.Contains(err.Error(), "secret") {
				t.Errorf("the reader of the stream gets %v", err)
			}
			if _, err := h.export(t, "one", "another-token"); err != nil {
				t.Error(err)
			}
		})
	}
}

// entries returns the files of a tar.
func entries(t testing.TB, b []byte) (names []string, content [][]byte) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(b))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return names, content
		}
		must(t, err)
		c, err := io.ReadAll(r)
		must(t, err)
		names, content = append(names, h.Name), append(content, c)
	}
}

func tarOf(t testing.TB, names []string, content [][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i, n := range names {
		must(t, writeEntry(w, n, content[i]))
	}
	must(t, w.Close())
	return b.Bytes()
}

// A stream with any change is refused, and leaves no files.
func TestChangedStreams(t *testing.T) {
	a := newHost(t, store.Options{})
	a.write(t, "one", noise(2, 300<<10))
	raw, err := a.export(t, "one")
	must(t, err)
	good := stream(t, layout(t, raw), false)
	names, content := entries(t, good)
	change := func(i int, old, new string) []byte {
		c := append([][]byte{}, content...)
		if !bytes.Contains(c[i], []byte(old)) {
			t.Fatalf("%s is not in file %d", old, i)
		}
		c[i] = bytes.Replace(c[i], []byte(old), []byte(new), 1)
		return tarOf(t, names, c)
	}
	last := len(names) - 1
	rows := map[string][]byte{
		"another architecture": change(0, `"amd64"`, `"arm64"`),
		"another type":         change(0, ArtifactType, "application/vnd.oci.image.config.v1+json"),
		"another format":       change(1, `"format": 2`, `"format": 3`),
		"another memory":       change(1, `"memory_mib": 64`, `"memory_mib": 65`),
		"a path":               change(1, `"disk0"`, `"../d0"`),
		"a missing blob":       tarOf(t, names[:last], content[:last]),
		"one more file":        tarOf(t, append(append([]string{}, names...), "more"), append(append([][]byte{}, content...), nil)),
		"cut short":            good[:len(good)/2],
		"empty":                nil,
		"text":                 []byte("hello"),
	}
	for i, n := range names {
		for _, at := range []int{0, len(content[i]) / 2, len(content[i]) - 1} {
			c := append([][]byte{}, content...)
			c[i] = bytes.Clone(c[i])
			c[i][at] ^= 0x41
			rows[fmt.Sprintf("byte %d of %s", at, n)] = tarOf(t, names, c)
		}
	}
	b := newHost(t, store.Options{})
	for name, data := range rows {
		t.Run(name, func(t *testing.T) {
			if err := b.receive(t, "two", data); !errors.Is(err, ErrInvalid) {
				t.Errorf("%v", err)
			}
			_, err := b.layers.GC(false)
			must(t, err)
			if left := b.left(t); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// A layer of the store with the same ID and other content stays as it is.
func TestALayerIsNotReplaced(t *testing.T) {
	a, b := newHost(t, store.Options{}), newHost(t, store.Options{})
	a.write(t, "one", noise(2, 300<<10))
	b.write(t, "own", noise(3, 300<<10))
	raw, err := a.export(t, "one")
	must(t, err)
	before, err := os.ReadFile(b.layers.Path(diffID))
	must(t, err)
	if err := b.receive(t, "two", stream(t, layout(t, raw), false)); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
	after, err := os.ReadFile(b.layers.Path(diffID))
	must(t, err)
	if sha256.Sum256(before) != sha256.Sum256(after) {
		t.Error("the layer was changed")
	}
}

func TestADamagedLayerIsNotSent(t *testing.T) {
	h := newHost(t, store.Options{})
	h.write(t, "one", nil)
	f, err := os.OpenFile(h.layers.Path(baseID), os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte{1, 2, 3}, layer.ContentOffset+5000)
	must(t, errors.Join(err, f.Close()))
	if _, err := h.export(t, "one"); !errors.Is(err, layer.ErrDamaged) {
		t.Errorf("%v", err)
	}
}

func TestTheReserveIsKept(t *testing.T) {
	a := newHost(t, store.Options{})
	a.write(t, "one", nil)
	raw, err := a.export(t, "one")
	must(t, err)
	b := newHost(t, store.Options{Reserve: 1 << 60})
	if err := b.receive(t, "two", stream(t, layout(t, raw), false)); !errors.Is(err, storeerr.ErrNoSpace) {
		t.Errorf("%v", err)
	}
	a.reopen(t, store.Options{Reserve: 1 << 60})
	if _, err := a.export(t, "one"); !errors.Is(err, storeerr.ErrNoSpace) {
		t.Errorf("packing: %v", err)
	}
}
