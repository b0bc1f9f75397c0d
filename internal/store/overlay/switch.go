package overlay

import (
	"errors"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/store/extent"
)

// SwitchOverlay lets the disk go on in an empty overlay file. The one until now is frozen
// and becomes a part of the backing: the disk that is returned shows that moment for
// ever, and may be read (CopyTo) and saved (SaveMap) while the other is used. It
// takes time by the number of runs, not of bytes. The old file stays in use by
// both, until Rebase takes the one that goes on off it; until then a flush of that one
// makes both durable. A disk that is Broken stays so: whether to switch it is the caller's to say.
func (d *Disk) SwitchOverlay(overlay *os.File) (frozen *Disk, err error) {
	return d.switchOverlay(file{overlay})
}

func (d *Disk) switchOverlay(overlay overlayFile) (frozen *Disk, err error) {
	old, ok := d.file.(opened)
	if !ok {
		return nil, errors.New("switch overlay: its overlay file is no file")
	}
	frozen = &Disk{file: d.file, size: d.size, backing: d.backing, allocated: d.allocated, layout: d.layout,
		formatted: d.formatted}
	var backing []extent.Extent
	for off := int64(0); off < d.size; {
		src, n := d.at(off, d.size-off)
		switch {
		case src.overlay:
			backing = extent.Append(backing, extent.Extent{File: old.handle(), FileOffset: src.off, Offset: off, Length: n})
		case src.file != nil:
			backing = extent.Append(backing, extent.Extent{File: src.file, FileOffset: src.off, Offset: off, Length: n})
		}
		off += n
	}
	d.setBacking(backing)
	d.file, d.allocated, d.formatted = overlay, newBitmap(d.layout.blocks), false
	if frozen.formatted {
		d.frozenMu.Lock()
		defer d.frozenMu.Unlock()
		d.frozen = append(d.frozen, frozen)
	}
	return frozen, nil
}

// SaveMap writes into a frozen disk's overlay file which blocks are in it, so that
// others can read it (Open, Allocated). Unlike a flush it makes nothing durable: that is for the
// layer that is made of it, or for a flush of the disk that went on.
func (d *Disk) SaveMap() error {
	if !d.formatted {
		return nil // nothing was ever written
	}
	d.mapMu.Lock()
	defer d.mapMu.Unlock()
	if _, err := d.allocated.save(d.file, d.layout); err != nil {
		return fmt.Errorf("save the overlay file's map: %w", err)
	}
	d.allocated.clean()
	return nil
}

// Check says whether backing extents could be put under the disk.
func (d *Disk) Check(backing []extent.Extent) error {
	if err := checkBacking(d.size, backing); err != nil {
		return fmt.Errorf("rebase disk: %w", err)
	}
	return nil
}

// Rebase puts other backing extents of the same content under the disk, which may be in
// use. Afterwards the files of the one before are not used any more.
func (d *Disk) Rebase(backing []extent.Extent) error {
	if err := d.Check(backing); err != nil {
		return err
	}
	d.frozenMu.Lock()
	defer d.frozenMu.Unlock()
	d.frozen = nil // what is durable already has taken their place
	d.setBacking(backing)
	return nil
}

func (d *Disk) setBacking(backing []extent.Extent) {
	d.backingMu.Lock()
	defer d.backingMu.Unlock()
	d.backing = backing
}
