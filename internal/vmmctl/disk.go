package vmmctl

import "os"

// Disk is a block device's backing, already open: a plain file, or an own file
// over a base (package cowdisk). The VMM keeps descriptors of its own.
type Disk struct {
	File     *os.File // the plain file
	ReadOnly bool

	// Own, if not nil, makes the disk a writable one of Size bytes whose content
	// is Base but for the blocks in Own. It is empty at first. Base is ascending
	// and does not overlap; what it does not cover is zero. A segment without a
	// file is as if it were not there.
	Own  *os.File
	Size int64
	Base []Segment
}

// Close closes all files of a disk.
func (d Disk) Close() {
	for _, f := range d.files() {
		f.Close()
	}
}

// files are the descriptors of a disk in the order in which they travel: the
// plain or own file, then each base file once.
func (d Disk) files() []*os.File {
	if d.Own == nil {
		return []*os.File{d.File}
	}
	files := []*os.File{d.Own}
	for _, s := range d.Base {
		if s.File != nil && indexOf(files[1:], s.File) < 0 {
			files = append(files, s.File)
		}
	}
	return files
}

func indexOf(files []*os.File, f *os.File) int {
	for i := len(files) - 1; i >= 0; i-- { // neighbours are often of one file
		if files[i] == f {
			return i
		}
	}
	return -1
}

// diskSpec names a disk within a message: its descriptors are the next in order.
type diskSpec struct {
	ReadOnly  bool          `json:"read_only,omitempty"`
	Own       bool          `json:"own,omitempty"`
	Size      int64         `json:"size,omitempty"`
	BaseFiles int           `json:"base_files,omitempty"`
	Base      []segmentSpec `json:"base,omitempty"` // file: index among the disk's base files
}

func addDisks(disks []Disk, files []*os.File) ([]diskSpec, []*os.File) {
	var specs []diskSpec
	for _, d := range disks {
		own := d.files()
		spec := diskSpec{ReadOnly: d.ReadOnly, Own: d.Own != nil, Size: d.Size, BaseFiles: len(own) - 1}
		for _, s := range d.Base {
			if s.File != nil {
				spec.Base = append(spec.Base, segmentSpec{
					File: indexOf(own[1:], s.File), FileOffset: s.FileOffset, Offset: s.Offset, Length: s.Length,
				})
			}
		}
		specs, files = append(specs, spec), append(files, own...)
	}
	return specs, files
}

// takeDisks splits the last descriptors off for the disks. Their owner is the
// handler from then on. After an error all files are still the caller's.
func takeDisks(specs []diskSpec, files []*os.File) (disks []Disk, rest []*os.File, err error) {
	n := len(files)
	for _, d := range specs {
		if d.BaseFiles < 0 || d.BaseFiles > MaxFiles || !d.Own && d.BaseFiles > 0 {
			return nil, files, errFiles
		}
		n -= 1 + d.BaseFiles
	}
	if n < 0 {
		return nil, files, errFiles
	}
	at := n
	for _, d := range specs {
		disk, err := takeDisk(d, files[at:at+1+d.BaseFiles])
		if err != nil {
			return nil, files, err
		}
		disks, at = append(disks, disk), at+1+d.BaseFiles
	}
	return disks, files[:n], nil
}

func takeDisk(d diskSpec, files []*os.File) (Disk, error) {
	if !d.Own {
		return Disk{File: files[0], ReadOnly: d.ReadOnly}, nil
	}
	disk := Disk{ReadOnly: d.ReadOnly, Own: files[0], Size: d.Size}
	base, used := files[1:], make([]bool, len(files)-1)
	for _, s := range d.Base {
		if s.File < 0 || s.File >= len(base) {
			return Disk{}, errFiles
		}
		used[s.File] = true
		disk.Base = append(disk.Base, Segment{File: base[s.File], FileOffset: s.FileOffset, Offset: s.Offset, Length: s.Length})
	}
	for _, u := range used {
		if !u { // nobody would close it
			return Disk{}, errFiles
		}
	}
	return disk, nil
}

func closeDisks(disks []Disk) {
	for _, d := range disks {
		d.Close()
	}
}
