package guestdump

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/forkd/forkd/internal/vm/guestmem"
)

// memory reads a guest's memory by physical and by virtual address.
type memory struct {
	image   io.ReaderAt // linear
	regions []guestmem.Region
	cr3     uint64
	levels  int // of page tables: 4 or 5
}

var errNoMemory = errors.New("no memory there")

// physical reads memory at a guest-physical address.
func (m *memory) physical(p []byte, gpa uint64) error {
	for _, r := range m.regions {
		if gpa < r.GPA || gpa-r.GPA > uint64(r.Size) || uint64(len(p)) > uint64(r.Size)-(gpa-r.GPA) {
			continue
		}
		if n, err := m.image.ReadAt(p, r.Offset+int64(gpa-r.GPA)); err != nil && (err != io.EOF || n < len(p)) {
			return err
		}
		return nil
	}
	return fmt.Errorf("%w: guest-physical %#x", errNoMemory, gpa)
}

// Bits of a page table's entry (Intel SDM, volume 3, 4.5).
const (
	entryPresent = 1
	entryLarge   = 1 << 7
	entryAddress = 0x000ffffffffff000
)

// translate walks the page tables.
func (m *memory) translate(va uint64) (gpa uint64, err error) {
	table := m.cr3 & entryAddress
	for level := m.levels - 1; level >= 0; level-- {
		shift := 12 + 9*level
		var b [8]byte
		if err := m.physical(b[:], table+(va>>shift&0x1ff)*8); err != nil {
			return 0, err
		}
		e := binary.LittleEndian.Uint64(b[:])
		if e&entryPresent == 0 {
			return 0, fmt.Errorf("%w: address %#x is not mapped", errNoMemory, va)
		}
		if level == 0 || level <= 2 && e&entryLarge != 0 {
			within := uint64(1)<<shift - 1
			return e&entryAddress&^within | va&within, nil
		}
		table = e & entryAddress
	}
	return 0, errNoMemory
}

// word reads 8 bytes at a virtual address, which may lie in two pages.
func (m *memory) word(va uint64) (uint64, error) {
	var b [8]byte
	first := min(8, guestmem.PageSize-va%guestmem.PageSize)
	for at := uint64(0); at < 8; {
		n := first
		if at > 0 {
			n = 8 - first
		}
		gpa, err := m.translate(va + at)
		if err != nil {
			return 0, err
		}
		if err := m.physical(b[at:at+n], gpa); err != nil {
			return 0, err
		}
		at += n
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}
