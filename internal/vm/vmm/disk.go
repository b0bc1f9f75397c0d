package vmm

import (
	"os"

	"github.com/forkd/forkd/internal/store/extent"
)

// Disk is a block device's backing, already open: a plain file, or an overlay file
// over a base (package overlay).
type Disk struct {
	File     *os.File // the plain file
	ReadOnly bool

	// Overlay, if not nil, makes the disk a writable one of Size bytes whose content
	// is Base but for the blocks in Overlay. It is empty at first. Base is ascending
	// and does not overlap; what it does not cover is zero. An extent without a
	// file is as if it were not there.
	Overlay *os.File
	Size    int64
	Base    []extent.Extent
	// Reserve is how many bytes the disk leaves free on the overlay file's file system.
	Reserve int64
	// Limit is how many bytes of that the overlay file may take; 0: no limit.
	Limit int64
}

// Close closes all files of a disk; those that several extents name once.
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

// CloseExtents closes the files of extents; one that several name once.
func CloseExtents(list []extent.Extent) { Disk{Base: list}.Close() }

func filesOf(list []extent.Extent) (files []*os.File) {
	for _, e := range list {
		files = append(files, e.File)
	}
	return files
}
