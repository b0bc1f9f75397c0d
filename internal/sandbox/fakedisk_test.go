package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/cowdisk"
	"github.com/forkd/forkd/internal/vmmctl"
)

// openDisks has the guest add a line to each disk that it can write: its own name,
// before those of its ancestors.
func (f *fake) openDisks(disks []vmmctl.Disk) error {
	if len(disks) != f.st.Shape.Disks {
		return fmt.Errorf("%d disks, want %d", len(disks), f.st.Shape.Disks)
	}
	for _, d := range disks {
		if d.Own == nil {
			continue
		}
		var base []cowdisk.Extent
		for _, s := range d.Base {
			base = append(base, cowdisk.Extent{File: s.File, FileOffset: s.FileOffset, Offset: s.Offset, Length: s.Length})
		}
		disk, err := cowdisk.Open(d.Own, d.Size, base)
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
		f.disks, f.bases, f.owns = append(f.disks, disk), append(f.bases, base), append(f.owns, []*os.File{d.Own})
	}
	return nil
}

func (f *fake) Rebase(r vmmctl.RebaseRequest) error {
	if f.spoiled("rebase-fail") {
		return errors.New("no rebase today")
	}
	for i, b := range r.Bases {
		var base []cowdisk.Extent
		for _, s := range b {
			base = append(base, cowdisk.Extent{File: s.File, FileOffset: s.FileOffset, Offset: s.Offset, Length: s.Length})
		}
		if err := f.disks[i].Rebase(base); err != nil {
			return err
		}
		last := len(f.owns[i]) - 1
		for _, spent := range f.owns[i][:last] {
			spent.Close()
		}
		for _, e := range f.bases[i] { // some more than once
			e.File.Close()
		}
		f.bases[i], f.owns[i] = base, f.owns[i][last:]
	}
	return nil
}
