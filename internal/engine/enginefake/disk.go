package enginefake

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/overlay"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// openDisks makes the guest add a line to each writable disk: its own name, before the names of its
// ancestors.
func (f *fake) openDisks(disks []vmm.Disk) error {
	if shape := f.st.Shape; len(disks) < shape.Disks || len(disks) > shape.Disks+shape.Slots {
		return fmt.Errorf("%d disks, want %d, and at most %d volumes", len(disks), shape.Disks, shape.Slots)
	}
	return f.addDisks(disks)
}

func (f *fake) addDisks(disks []vmm.Disk) error {
	for _, d := range disks {
		if d.Overlay == nil {
			continue
		}
		disk, err := overlay.Open(d.Overlay, d.Size, d.Base)
		if err != nil {
			return err
		}
		b := make([]byte, 4096)
		if _, err := disk.ReadAt(b, 0); err != nil {
			return err
		}
		line := fmt.Sprintf("%s\n%s", filepath.Base(f.dir), bytes.TrimRight(b, "\x00"))
		if _, err := disk.WriteAt([]byte(line), 0); err != nil {
			return err
		}
		if err := disk.Flush(); err != nil {
			return err
		}
		f.disks, f.bases, f.owns = append(f.disks, disk), append(f.bases, d.Base), append(f.owns, []*os.File{d.Overlay})
	}
	return nil
}

// writeLate writes the guest's pending file writes to its disks.
func (f *fake) writeLate() error {
	for _, d := range f.disks {
		if _, err := d.WriteAt([]byte("written back"), 8192); err != nil {
			return err
		}
		if err := d.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func (f *fake) Rebase(bases [][]extent.Extent) error {
	if f.faulty("rebase-fail") {
		return errors.New("no rebase today")
	}
	for i, base := range bases {
		if err := f.disks[i].Rebase(base); err != nil {
			return err
		}
		last := len(f.owns[i]) - 1
		for _, frozen := range f.owns[i][:last] {
			frozen.Close()
		}
		for _, e := range f.bases[i] { // some more than once
			e.File.Close()
		}
		f.bases[i], f.owns[i] = base, f.owns[i][last:]
	}
	return nil
}
