package blk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// memoryDisk is a backend in memory.
type memoryDisk []byte

func (m memoryDisk) ReadAt(p []byte, off int64) (int, error)  { return copy(p, m[off:]), nil }
func (m memoryDisk) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }
func (m memoryDisk) Size() int64                              { return int64(len(m)) }
func (m memoryDisk) Flush() error                             { return nil }

func capacity(d *Device) uint64 {
	var b [8]byte
	d.ReadConfig(0, b[:])
	return binary.LittleEndian.Uint64(b[:])
}

func TestASlotGetsOneDisk(t *testing.T) {
	d := NewSlot("forkd-volume-0")
	before := d.Features()
	if capacity(d) != 0 || before&featureReadOnly != 0 || before&featureDiscard == 0 {
		t.Errorf("an empty slot has %d sectors and features %#x", capacity(d), before)
	}
	if err := d.Plug(memoryDisk(nil)); err == nil {
		t.Error("it took an empty disk")
	}
	if err := d.Plug(make(memoryDisk, 8192)); err != nil {
		t.Fatal(err)
	}
	if capacity(d) != 16 || d.Features() != before {
		t.Errorf("it has %d sectors, and features %#x instead of %#x", capacity(d), d.Features(), before)
	}
	if err := d.Plug(make(memoryDisk, 8192)); !errors.Is(err, ErrTaken) {
		t.Errorf("a second disk: %v", err)
	}
	plain, err := New(Config{Backend: make(memoryDisk, 8192)})
	if err != nil {
		t.Fatal(err)
	}
	if err := plain.Plug(make(memoryDisk, 8192)); !errors.Is(err, ErrTaken) {
		t.Errorf("a disk for a device that is no slot: %v", err)
	}
}

// A guest with a volume must not be restored without it, and the other way round.
func TestStateOfASlot(t *testing.T) {
	empty, full := NewSlot("a"), NewSlot("a")
	if err := full.Plug(make(memoryDisk, 8192)); err != nil {
		t.Fatal(err)
	}
	if err := NewSlot("a").RestoreState(full.SaveState()); err == nil {
		t.Error("a guest with a volume was restored without it")
	}
	other := NewSlot("a")
	if err := other.Plug(make(memoryDisk, 8192)); err != nil {
		t.Fatal(err)
	}
	if err := other.RestoreState(full.SaveState()); err != nil {
		t.Error(err)
	}
	if err := NewSlot("b").RestoreState(empty.SaveState()); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(empty.SaveState(), NewSlot("a").SaveState()) {
		t.Error("two empty slots have different states")
	}
}
