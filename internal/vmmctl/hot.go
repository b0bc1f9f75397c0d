package vmmctl

import (
	"context"
	"os"
)

// HotResult tells what a hot set has, or what of one was populated.
type HotResult struct {
	Runs         int   `json:"runs"`
	ReadPages    int64 `json:"read_pages"`
	WrittenPages int64 `json:"written_pages"`
	MapNanos     int64 `json:"map_ns,omitempty"` // mapping the pages in the VMM
	KVMNanos     int64 `json:"kvm_ns,omitempty"` // and then in the guest, which stands still meanwhile
}

// WriteHot writes which pages a paused VM has touched since its restore, as a
// hot set: all of them if it was restored with Watch and the kernel can tell,
// else those that it wrote.
func (p *Process) WriteHot(ctx context.Context, f *os.File) (HotResult, error) {
	var r HotResult
	return r, p.call(ctx, opWriteHot, nil, &r, f)
}

// Populate maps a hot set's pages at once, so that the running VM does not stop
// at each. What the kernel cannot do is left out silently. After an error the VM
// runs on, unless it is gone.
func (p *Process) Populate(ctx context.Context, f *os.File) (HotResult, error) {
	var r HotResult
	return r, p.call(ctx, opPopulate, nil, &r, f)
}

// hot runs the requests that have a hot set's file.
func (s *Server) hot(op string, files []*os.File) (any, error) {
	if len(files) != 1 {
		return nil, errFiles
	}
	if op == opWriteHot {
		return s.h.WriteHot(files[0])
	}
	return s.h.Populate(files[0])
}
