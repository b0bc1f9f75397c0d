package cowdisk

import (
	"errors"
	"fmt"
	"os"
)

// Broken is the error of a flush that failed, after which the disk cannot be rotated.
func (d *Disk) Broken() error { return d.broken }

// Rotate lets the disk go on in an empty own file. What it has of its own until
// now becomes a part of its base: the disk that is returned shows that moment for
// ever, and may be read (CopyTo) and saved (SaveMap) while the other is used. It
// takes time by the number of runs, not of bytes. The old file stays in use by
// both, until Rebase takes the one that goes on off it.
func (d *Disk) Rotate(own *os.File) (frozen *Disk, err error) {
	if err := d.Broken(); err != nil {
		return nil, err
	}
	old, ok := d.own.(file)
	if !ok {
		return nil, errors.New("rotate disk: its own file is no file")
	}
	frozen = &Disk{own: d.own, size: d.size, base: d.base, owned: d.owned, layout: d.layout, formatted: d.formatted}
	var base []Extent
	for off := int64(0); off < d.size; {
		src, n := d.at(off, d.size-off)
		switch {
		case src.own:
			base = append(base, Extent{File: old.f, FileOffset: src.off, Offset: off, Length: n})
		case src.file != nil:
			base = append(base, Extent{File: src.file, FileOffset: src.off, Offset: off, Length: n})
		}
		off += n
	}
	d.setBase(base)
	d.own, d.owned, d.formatted = file{own}, newBitmap(d.layout.blocks), false
	return frozen, nil
}

// SaveMap writes into a frozen disk's own file which blocks are in it, so that
// others can read it (Open, Own). Unlike a flush it makes nothing durable.
func (d *Disk) SaveMap() error {
	if !d.formatted {
		return nil // nothing was ever written
	}
	if _, err := d.owned.save(d.own, d.layout); err != nil {
		return fmt.Errorf("save the own file's map: %w", err)
	}
	d.owned.clean()
	return nil
}

// Check says whether a base could be put under the disk.
func (d *Disk) Check(base []Extent) error {
	if err := checkBase(d.size, base); err != nil {
		return fmt.Errorf("rebase disk: %w", err)
	}
	return nil
}

// Rebase puts another base of the same content under the disk, which may be in
// use. Afterwards the files of the one before are not used any more.
func (d *Disk) Rebase(base []Extent) error {
	if err := d.Check(base); err != nil {
		return err
	}
	d.setBase(base)
	return nil
}

func (d *Disk) setBase(base []Extent) {
	d.baseMu.Lock()
	defer d.baseMu.Unlock()
	d.base = base
}
