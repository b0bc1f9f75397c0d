package overlay

import (
	"fmt"
)

// Discard implements blk.Discarder. Whole blocks read as zeros afterwards and take no space. Partial blocks at
// the ends keep their content.
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
	if err := d.clear(first, end); err != nil { // no data is lost: the range is unchanged
		return fmt.Errorf("discard %d bytes at %d: %w", n, off, err)
	}
	return nil
}

// WriteZeroes implements blk.Discarder. Whole blocks become holes even if the guest does not allow that: storing
// zeros would use the host's space, gigabytes for a single request.
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

// endBlock returns the end of the whole blocks before off. The disk's last block counts as whole even if the disk
// ends within it.
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
	// Punch before setting the bits: data that a crash left in the file under a clear bit must not become
	// visible.
	if err := d.file.punch(first*BlockSize, (end-first)*BlockSize); err != nil {
		return err
	}
	d.allocated.set(first, end)
	return nil
}

// writeZeros writes zeros to less than a block.
func (d *Disk) writeZeros(off, n int64) error {
	if n <= 0 {
		return nil
	}
	return d.WriteVecAt([][]byte{make([]byte, n)}, off)
}
