package wire

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/store/extent"
)

// Access is a VMM's access to a received file (docs/inside/vmm.md).
type Access int

const (
	Read  Access = iota // reopened for reading
	Write               // reopened for reading and writing, at its current position
	AsIs                // passed on unchanged: the VM's own file, or a sealed one
)

// File is a file to send.
type File struct {
	*os.File
	Access Access // how the file is reopened before it is sent
}

// Request is an unsent message to a VMM: plain data, and its files in order.
type Request struct {
	Op    string // one of the Op constants
	Files []File // the message's descriptors, in order
	body  any
	table []byte
}

// Message returns the encoded message. If table is not nil, it follows Files; the caller closes it
// after sending.
func (r *Request) Message() (m Message, table *os.File, err error) {
	m.Op = r.Op
	if r.body != nil {
		if m.Body, err = json.Marshal(r.body); err != nil {
			return m, nil, fmt.Errorf("encode request: %w", err)
		}
	}
	if len(r.table) <= maxInline {
		m.Table = r.table
		return m, nil, nil
	}
	if table, err = sealed(r.table); err != nil {
		return m, nil, fmt.Errorf("make table of %d extents: %w", len(r.table)/extentBytes, err)
	}
	m.TableFile = true
	return m, table, nil
}

// Ask returns a request without a body.
func Ask(op string) *Request { return &Request{Op: op} }

// fileRef names a file of a message: 1 for the first descriptor; 0 for none.
type fileRef uint32

// file adds a file to a request.
func (r *Request) file(f *os.File, a Access) fileRef {
	if f == nil {
		return 0
	}
	r.Files = append(r.Files, File{f, a})
	return fileRef(len(r.Files))
}

func (r *Request) fileList(list []*os.File, a Access) (refs []fileRef) {
	for _, f := range list {
		refs = append(refs, r.file(f, a))
	}
	return refs
}

// extents adds a list to the table, and each of its files once. Different lists share no file,
// since each list has its own owner at the other end.
func (r *Request) extents(list []extent.Extent) (n int) {
	refs := map[*os.File]fileRef{nil: 0}
	for _, s := range list {
		ref, known := refs[s.File]
		if !known {
			ref = r.file(s.File, Read)
			refs[s.File] = ref
		}
		r.table = appendExtent(r.table, s, ref)
	}
	return len(list)
}

// base adds extents for a disk. It omits extents without a file, because uncovered ranges are zero
// anyway.
func (r *Request) base(list []extent.Extent) (n int) {
	kept := make([]extent.Extent, 0, len(list))
	for _, s := range list {
		if s.File != nil {
			kept = append(kept, s)
		}
	}
	return r.extents(kept)
}
