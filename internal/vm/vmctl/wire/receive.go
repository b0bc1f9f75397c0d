package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/sys/unixfd"
)

// ErrFiles is returned if a request's descriptors do not match the ones it names.
var ErrFiles = errors.New("control message has too few descriptors, or too many")

// arrival decodes a received request. Its methods read the parts in the order in which Request
// wrote them. The first error is kept.
type arrival struct {
	files []*os.File
	owner []int // for each file, the part of the request that named it; 0 if unnamed
	part  int   // number of the current part
	table []byte
	err   error
}

// arrive starts decoding with the common parts and the body.
func arrive(m Message, files []*os.File, body any) *arrival {
	a := &arrival{files: files}
	if err := json.Unmarshal(m.Body, body); err != nil {
		a.err = fmt.Errorf("decode request: %w", err)
		return a
	}
	a.table, a.files, a.err = openTable(m, files)
	a.owner = make([]int, len(a.files))
	return a
}

// end returns the first error, if any, and then closes the files. It is an error if a file was not
// named, because the file would leak.
func (a *arrival) end() error {
	if a.err == nil && len(a.table) > 0 {
		a.fail(fmt.Errorf("the message's table has %d extents more than the request names", len(a.table)/extentBytes))
	}
	for _, o := range a.owner {
		if o == 0 {
			a.fail(ErrFiles)
		}
	}
	if a.err != nil {
		unixfd.CloseAll(a.files)
	}
	return a.err
}

func (a *arrival) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// take returns a file for the current part. Each file has one owner.
func (a *arrival) take(r fileRef) *os.File {
	if r == 0 || a.err != nil {
		return nil
	}
	if int64(r) > int64(len(a.files)) || a.owner[r-1] != 0 && a.owner[r-1] != a.part {
		a.fail(ErrFiles)
		return nil
	}
	a.owner[r-1] = a.part
	return a.files[r-1]
}

// file returns a required file.
func (a *arrival) file(r fileRef) *os.File {
	f := a.optional(r)
	if f == nil {
		a.fail(ErrFiles)
	}
	return f
}

// optional returns a file, or nil if absent.
func (a *arrival) optional(r fileRef) *os.File {
	a.part++
	return a.take(r)
}

func (a *arrival) fileList(refs []fileRef) (files []*os.File) {
	for _, r := range refs {
		files = append(files, a.file(r))
	}
	return files
}

// extents returns the next n extents of the table.
func (a *arrival) extents(n int) (list []extent.Extent) {
	if a.err != nil {
		return nil
	}
	if n < 0 || n > len(a.table)/extentBytes {
		a.fail(fmt.Errorf("the message's table has %d extents, want %d more", len(a.table)/extentBytes, n))
		return nil
	}
	a.part++
	list = make([]extent.Extent, 0, n)
	for range n {
		s, r := readExtent(a.table)
		s.File, a.table = a.take(r), a.table[extentBytes:]
		list = append(list, s)
	}
	return list
}

// base returns n extents for a disk. Each must have a file.
func (a *arrival) base(n int) []extent.Extent {
	list := a.extents(n)
	for _, s := range list {
		if s.File == nil {
			a.fail(ErrFiles)
		}
	}
	return list
}

// genID returns a VM generation ID.
func (a *arrival) genID(b []byte) (id [16]byte) {
	if copy(id[:], b) != len(id) || len(b) != len(id) {
		a.fail(fmt.Errorf("the generation ID has %d bytes, want %d", len(b), len(id)))
	}
	return id
}
