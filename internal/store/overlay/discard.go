package overlay

import (
	"fmt"
)

// Discard implements blk.Discarder. Whole blocks read as zeros afterwards and
// take no room; what is left of others at the ends keeps its content.
func (d *Disk) Discard(off, n int64) error {
	if err := d.checkRange(off, n); err != nil {
		return err
	}
	if d.broken != nil {
		return d.broken
	}
	first, end := (off+BlockSize-1)/BlockSize, d.endBlock(off+n)
	if first >= end {
		return nil
	}
	if err := d.clear(first, end); err != nil { // nothing is lost: the range has what it had
		return fmt.Errorf("discard %d bytes at %d: %w", n, off, err)
	}
	return nil
}

// WriteZeroes implements blk.Discarder. Whole blocks become holes, whether or not
// the guest allows it: kept, their room would be the host's, gigabytes for a single request.
func (d *Disk) WriteZeroes(off, n int64) error {
	if err := d.checkRange(off, n); err != nil {
		return err
	}
	if d.broken != nil {
		return d.broken
	}
	first, end := (off+BlockSize-1)/BlockSize, d.endBlock(off+n)
	if first >= end {
		return d.writeZeros(off, n)
	}
	if err := d.clear(first, end); err != nil {
		return d.written(off, n, "zero", err)
	}
	if err := d.writeZeros(off, first*BlockSize-off); err != nil {
		return err
	}
	return d.writeZeros(end*BlockSize, off+n-end*BlockSize)
}

// endBlock is the end of the whole blocks before off. The disk's last block is
// whole even if the disk ends within it.
func (d *Disk) endBlock(off int64) int64 {
	if off == d.size {
		return d.layout.blocks
	}
	return off / BlockSize
}

// clear makes blocks allocated and zero.
func (d *Disk) clear(first, end int64) error {
	if err := d.format(); err != nil {
		return err
	}
	// Before the bits: what a crash has left in the file under a clear bit must not show.
	if err := d.file.punch(first*BlockSize, (end-first)*BlockSize); err != nil {
		return err
	}
	d.allocated.set(first, end)
	return nil
}

// writeZeros is for less than a block.
func (d *Disk) writeZeros(off, n int64) error {
	if n <= 0 {
		return nil
	}
	return d.WriteVecAt([][]byte{make([]byte, n)}, off)
}
