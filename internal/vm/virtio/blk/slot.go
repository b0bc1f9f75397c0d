package blk

import (
	"errors"
	"fmt"
)

// ErrTaken is returned for a second disk of a slot.
var ErrTaken = errors.New("the slot has a disk already")

// errEmpty is the error of every request to an empty slot.
var errEmpty = errors.New("the slot is empty")

// NewSlot creates a device without a disk: its capacity is 0 until Plug. The guest's driver starts
// it at boot, so the features are those of a writable disk. A slot never offers the read-only
// feature, which the driver reads only once.
func NewSlot(id string) *Device {
	d := &Device{slot: true}
	d.backing.Store(&backing{Backend: empty{}})
	copy(d.id[:], id)
	d.Init(d.serve)
	return d
}

// Plug gives a slot its disk. The driver learns the capacity at the next change of configuration
// space, which the caller announces.
func (d *Device) Plug(b Backend) error {
	size := b.Size()
	if size < SectorSize {
		return fmt.Errorf("disk size is %d", size)
	}
	was := d.backing.Load()
	if _, is := was.Backend.(empty); !d.slot || !is {
		return ErrTaken
	}
	next := &backing{Backend: b, sectors: uint64(size) / SectorSize}
	next.discard, _ = b.(Discarder)
	if !d.backing.CompareAndSwap(was, next) {
		return ErrTaken
	}
	return nil
}

// offersDiscard reports whether the driver may discard. A slot decides before it has a disk.
func (d *Device) offersDiscard(b *backing) bool { return d.slot || b.discard != nil }

// empty is the backend of a slot without a disk.
type empty struct{}

func (empty) ReadAt([]byte, int64) (int, error)  { return 0, errEmpty }
func (empty) WriteAt([]byte, int64) (int, error) { return 0, errEmpty }
func (empty) Size() int64                        { return 0 }
func (empty) Flush() error                       { return nil }
