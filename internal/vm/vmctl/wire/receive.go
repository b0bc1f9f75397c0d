package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/sys/unixfd"
)

// ErrFiles: a request's descriptors are not those that it names.
var ErrFiles = errors.New("control message has too few descriptors, or too many")

// arrival is a request that came. Its methods take it apart, in the order in which Request's
// put it together; the first error stays.
type arrival struct {
	files []*os.File
	owner []int // by file: which of the request's parts named it; 0: none has
	part  int   // counts those
	table []byte
	err   error
}

// arrive begins with what every request has, and decodes body.
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

// end is the error, if there was one: then the files are closed. Every file must have
// been named, or nobody would close it.
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

// take is a file for the part under way; a file has one owner.
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

// file is a file that there must be.
func (a *arrival) file(r fileRef) *os.File {
	f := a.optional(r)
	if f == nil {
		a.fail(ErrFiles)
	}
	return f
}

// optional is a file that there may be.
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

// extents takes the next n of the table.
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

// base is extents for a disk, of which each has a file.
func (a *arrival) base(n int) []extent.Extent {
	list := a.extents(n)
	for _, s := range list {
		if s.File == nil {
			a.fail(ErrFiles)
		}
	}
	return list
}

// genID is a VM generation ID.
func (a *arrival) genID(b []byte) (id [16]byte) {
	if copy(id[:], b) != len(id) || len(b) != len(id) {
		a.fail(fmt.Errorf("the generation ID has %d bytes, want %d", len(b), len(id)))
	}
	return id
}
