package hub

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
)

// blobs opens the blobs of a snapshot.
func (h *host) blobs(t testing.TB, offers *Offers, tag string, secrets ...string) (*Blobs, error) {
	t.Helper()
	files, err := h.snapshots.Open(tag)
	must(t, err)
	return offers.Open(t.Context(), Export{Files: files, Layers: h.layers, Secrets: secrets},
		files.Close)
}

// whole reads a blob.
func whole(t testing.TB, b *Blobs, d Descriptor) []byte {
	t.Helper()
	r := b.Blob(d.Digest)
	if r == nil {
		t.Fatalf("no blob %s", d.Digest)
	}
	defer r.Close()
	out, err := io.ReadAll(r)
	must(t, err)
	must(t, checkBlob(out, d))
	return out
}

// The blobs are the same bytes as an export's, so a peer can stand for a registry.
func TestBlobsAreThoseOfAnExport(t *testing.T) {
	h := newHost(t, store.Options{})
	h.write(t, "one", noise(2, 300<<10))
	sent, err := h.export(t, "one")
	must(t, err)
	l := layout(t, sent)
	var offers Offers
	for range 2 { // the second time from memory
		b, err := h.blobs(t, &offers, "one")
		must(t, err)
		if !bytes.Equal(b.Manifest(), l.Raw) {
			t.Fatalf("%s\nis not\n%s", b.Manifest(), l.Raw)
		}
		for _, d := range l.Artifact.Blobs() {
			whole(t, b, d)
		}
		if b.Blob("sha256:"+fmt.Sprintf("%064x", 1)) != nil {
			t.Error("there is a blob of an unknown digest")
		}
		b.Close()
	}
}

func TestRangesOfABlob(t *testing.T) {
	h := newHost(t, store.Options{})
	h.write(t, "one", noise(2, 900<<10))
	var offers Offers
	b, err := h.blobs(t, &offers, "one")
	must(t, err)
	defer b.Close()
	a, err := ParseArtifact(b.Manifest())
	must(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	for _, d := range a.Blobs() {
		want := whole(t, b, d)
		r := b.Blob(d.Digest)
		for range 50 {
			at := random.Int64N(d.Size)
			n := 1 + random.Int64N(min(d.Size-at, 700<<10))
			_, err := r.Seek(at, io.SeekStart)
			must(t, err)
			got := make([]byte, n)
			if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, want[at:at+n]) {
				t.Fatalf("%d bytes at %d of %s: %v", n, at, d.Digest, err)
			}
		}
		if size, err := r.Seek(0, io.SeekEnd); err != nil || size != d.Size {
			t.Errorf("the end is at %d, want %d: %v", size, d.Size, err)
		}
		if n, err := r.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %d bytes, %v", n, err)
		}
		must(t, r.Close())
	}
}

func TestBlobsWithSecretsAndDamage(t *testing.T) {
	h := newHost(t, store.Options{})
	h.write(t, "one", nil)
	var offers Offers
	if _, err := h.blobs(t, &offers, "one", "a root disk"); !errors.Is(err, ErrSecret) {
		t.Fatalf("got %v", err)
	}
	b, err := h.blobs(t, &offers, "one")
	must(t, err)
	a, err := ParseArtifact(b.Manifest())
	must(t, err)
	last := a.Layers[len(a.Layers)-1] // frames of the memory
	f, err := os.OpenFile(h.layers.Path(baseID), os.O_RDWR, 0)
	if err != nil {
		must(t, os.Chmod(h.layers.Path(baseID), 0o600))
		f, err = os.OpenFile(h.layers.Path(baseID), os.O_RDWR, 0)
	}
	must(t, err)
	_, err = f.WriteAt([]byte("other"), layer.ContentOffset+100)
	must(t, err)
	must(t, f.Close())
	r := b.Blob(last.Digest)
	if _, err := io.ReadAll(r); !errors.Is(err, layer.ErrDamaged) {
		t.Errorf("a damaged layer was sent: %v", err)
	}
	must(t, r.Close())
	b.Close()
	if _, there := offers.get(layerPrefix + baseID.String()); there {
		t.Error("the table of changed content is kept")
	}
	if _, err := h.blobs(t, &offers, "one"); !errors.Is(err, layer.ErrDamaged) {
		t.Errorf("a damaged layer is offered: %v", err)
	}
}

func TestOffersAreBounded(t *testing.T) {
	var s Offers
	big := offered{coded: make([]byte, maxTables/12)}
	for i := range 20 {
		s.put(fmt.Sprint(i), big)
	}
	if s.bytes > maxTables || len(s.known) != len(s.order) || len(s.known) > 4 {
		t.Errorf("%d entries of %d bytes", len(s.known), s.bytes)
	}
	if _, there := s.get("19"); !there {
		t.Error("the newest entry was dropped")
	}
}
