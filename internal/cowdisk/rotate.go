package cowdisk

import (
	"errors"
	"os"
)

// Broken is the error of a flush that failed, after which the disk cannot be rotated.
func (d *Disk) Broken() error { return d.broken }

// Rotate lets the disk go on in an empty own file. What it has of its own until
// now becomes a part of its base and is never written again: the disk that is
// returned shows that moment for ever, and may be read (CopyTo) while the other
// is used. It takes time by the number of runs, not of bytes. The old file stays
// open as long as either is used.
func (d *Disk) Rotate(own *os.File) (frozen *Disk, err error) {
	if err := d.Broken(); err != nil {
		return nil, err
	}
	old, ok := d.own.(file)
	if !ok {
		return nil, errors.New("rotate disk: its own file is no file")
	}
	frozen = &Disk{own: d.own, size: d.size, base: d.base, owned: d.owned, layout: d.layout}
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
	d.own, d.base, d.owned, d.formatted = file{own}, base, newBitmap(d.layout.blocks), false
	return frozen, nil
}
