package overlay

import (
	"errors"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/store/extent"
)

// SwitchOverlay continues the disk in an empty overlay file. The previous one is frozen and becomes a part of the
// backing. The returned disk shows the state at this moment forever, and may be read (CopyTo) and saved (SaveMap)
// while the other one is in use. The time depends on the number of runs, not of bytes. Both use the old file
// until Rebase removes it from the continued disk. Until then, a flush of the continued disk makes both durable.
// A Broken disk stays broken; the caller decides whether to switch it.
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

// SaveMap writes the bitmap of a frozen disk into its overlay file, so that other processes can read it (Open,
// Allocated). Unlike a flush, it makes no data durable: the layer made from the disk, or a flush of the continued
// disk, does.
func (d *Disk) SaveMap() error {
	if !d.formatted {
		return nil // there were no writes
	}
	d.mapMu.Lock()
	defer d.mapMu.Unlock()
	if _, err := d.allocated.save(d.file, d.layout); err != nil {
		return fmt.Errorf("save the overlay file's map: %w", err)
	}
	d.allocated.clean()
	return nil
}

// Check returns an error if the backing extents do not fit the disk.
func (d *Disk) Check(backing []extent.Extent) error {
	if err := checkBacking(d.size, backing); err != nil {
		return fmt.Errorf("rebase disk: %w", err)
	}
	return nil
}

// Rebase replaces the disk's backing by extents with the same content. The disk may be in use. Afterwards it no
// longer uses the previous files.
func (d *Disk) Rebase(backing []extent.Extent) error {
	if err := d.Check(backing); err != nil {
		return err
	}
	d.frozenMu.Lock()
	defer d.frozenMu.Unlock()
	d.frozen = nil // durable layers have replaced them
	d.setBacking(backing)
	return nil
}

func (d *Disk) setBacking(backing []extent.Extent) {
	d.backingMu.Lock()
	defer d.backingMu.Unlock()
	d.backing = backing
}
