package vmm

import (
	"os"

	"github.com/forkd/forkd/internal/store/extent"
)

// Disk is the open backing of a block device: a plain file, or an overlay file over a base (package
// overlay).
type Disk struct {
	File     *os.File // the plain file
	ReadOnly bool     // the device refuses the guest's writes

	// Overlay, if not nil, makes the disk writable, with Size bytes. Its content is Base overlaid
	// with the blocks in Overlay, which is initially empty. Base is ascending and does not overlap;
	// the bytes it does not cover are zero. Extents without a file are ignored.
	Overlay *os.File
	Size    int64           // bytes
	Base    []extent.Extent // the disk owns its files; see Close
	// Reserve is the number of bytes the disk leaves free on the overlay file's file system.
	Reserve int64
	// Limit is the maximum size of the overlay file in bytes on its file system; 0 for no limit.
	Limit int64
}

// Close closes all files of a disk. A file used by several extents is closed once.
func (d Disk) Close() {
	closed := map[*os.File]bool{nil: true}
	for _, f := range append([]*os.File{d.File, d.Overlay}, filesOf(d.Base)...) {
		if !closed[f] {
			closed[f] = true
			f.Close()
		}
	}
}

// CloseDisks closes all files of all disks.
func CloseDisks(disks []Disk) {
	for _, d := range disks {
		d.Close()
	}
}

// CloseExtents closes the files of extents. A file used by several extents is closed once.
func CloseExtents(list []extent.Extent) { Disk{Base: list}.Close() }

func filesOf(list []extent.Extent) (files []*os.File) {
	for _, e := range list {
		files = append(files, e.File)
	}
	return files
}
