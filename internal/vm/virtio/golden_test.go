package virtio_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/forkd/forkd/internal/vm/virtio/virtiotest"
)

var update = flag.Bool("update", false, "rewrite golden files")

// The encoding of released versions must not change.
func TestGoldenState(t *testing.T) {
	const path = "testdata/transport-v1.state"
	d, _ := startEcho(t, allFeatures)
	for range 3 {
		if _, err := d.Queues[0].Exchange([]byte("abc"), 3); err != nil {
			t.Fatal(err)
		}
	}
	d.MMIO.Pause()
	got, err := d.MMIO.Save()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("state is\n% x, golden file has\n% x", got, want)
	}
	b := virtiotest.New(t, newEcho(16), d.Mem)
	if err := b.MMIO.Restore(want); err != nil {
		t.Fatal(err)
	}
	b.MMIO.Resume()
	if got, err := d.Move(b).Queues[0].Exchange([]byte("abc"), 3); err != nil || string(got) != "abc" {
		t.Errorf("after restore: %q, %v", got, err)
	}
}
