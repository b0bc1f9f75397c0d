package rng

import (
	"bytes"
	"errors"
	"testing"
	"testing/iotest"

	"github.com/forkd/forkd/internal/vm/virtio/virtiotest"
)

func start(t testing.TB, dev *Device) *virtiotest.Driver {
	t.Helper()
	d, err := virtiotest.New(t, dev, virtiotest.NewMemory(1<<20)).Start(^uint64(0))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestFillsWithRandomBytes(t *testing.T) {
	d := start(t, New(nil))
	seen := map[string]bool{}
	for range 100 {
		got, err := d.Queues[0].Exchange(nil, 64)
		if err != nil || len(got) != 64 {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		if seen[string(got)] {
			t.Fatal("the same bytes twice")
		}
		seen[string(got)] = true
	}
}

func TestRequestIsBounded(t *testing.T) {
	d := start(t, New(nil))
	got, err := d.Queues[0].Exchange(nil, 3*MaxRequest)
	if err != nil || len(got) != MaxRequest {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
}

func TestBreaksRatherThanGivesLess(t *testing.T) {
	for name, c := range map[string]struct {
		dev *Device
		out []byte
	}{
		"readable buffer": {New(nil), []byte("x")},
		"source fails":    {New(iotest.ErrReader(errors.New("no entropy"))), nil},
		"source ends":     {New(bytes.NewReader(make([]byte, 10))), nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := start(t, c.dev)
			if _, err := d.Queues[0].Exchange(c.out, 64); err == nil || !d.MMIO.NeedsReset() {
				t.Errorf("device goes on: %v", err)
			}
		})
	}
}

func TestSaveRestoreGivesOtherBytes(t *testing.T) {
	d := start(t, New(nil))
	d.MMIO.Pause()
	state, err := d.MMIO.Save()
	if err != nil {
		t.Fatal(err)
	}
	b := virtiotest.New(t, New(nil), d.Mem.Clone())
	if err := b.MMIO.Restore(state); err != nil {
		t.Fatal(err)
	}
	b.MMIO.Resume()
	d.MMIO.Resume()
	one, err1 := d.Move(b).Queues[0].Exchange(nil, 32)
	two, err2 := d.Queues[0].Exchange(nil, 32)
	if err1 != nil || err2 != nil || bytes.Equal(one, two) {
		t.Errorf("source %x (%v), restored %x (%v)", two, err2, one, err1)
	}
}

func TestGoldenState(t *testing.T) {
	if got := New(nil).SaveState(); !bytes.Equal(got, []byte{1, 0}) {
		t.Errorf("state % x", got)
	}
}
