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
	_, base := specs(d.Base)
	return append([]*os.File{d.Own}, base...)
}

// diskSpec names a disk within a message: its descriptors are the next in order.
type diskSpec struct {
	ReadOnly  bool          `json:"read_only,omitempty"`
	Own       bool          `json:"own,omitempty"`
	Size      int64         `json:"size,omitempty"`
	BaseFiles int           `json:"base_files,omitempty"`
	Segments  int           `json:"segments,omitempty"` // of the table; their files are indices among the disk's base files
	Base      []segmentSpec `json:"-"`
}

func addDisks(disks []Disk, files []*os.File) ([]diskSpec, []*os.File) {
	var out []diskSpec
	for _, d := range disks {
		spec := diskSpec{ReadOnly: d.ReadOnly, Own: d.Own != nil, Size: d.Size}
		if d.Own == nil {
			out, files = append(out, spec), append(files, d.File)
			continue
		}
		base, under := specs(d.Base)
		for _, s := range base {
			if s.File >= 0 {
				spec.Base = append(spec.Base, s)
			}
		}
		spec.BaseFiles, spec.Segments = len(under), len(spec.Base)
		out, files = append(out, spec), append(append(files, d.Own), under...)
	}
	return out, files
}

// basesOf are the disks' segments for a message's table.
func basesOf(disks []diskSpec) (lists [][]segmentSpec) {
	for _, d := range disks {
		lists = append(lists, d.Base)
	}
	return lists
}

// fillBases takes the disks' segments off a message's table.
func fillBases(disks []diskSpec, t *table) (err error) {
	for i := range disks {
		if disks[i].Base, err = t.next(disks[i].Segments); err != nil {
			return err
		}
	}
	return nil
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
