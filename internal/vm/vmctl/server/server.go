// Package server is a VMM process's end of the control socket. It serves the daemon's requests with
// a Handler, reports events to the daemon, and asks it to dial for the guest. Package client is the
// other end. The package does not know KVM; command forkd-vmm connects the machine to it.
//
// The goroutine that reads requests also answers them, until a potentially long request comes.
package server

import (
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/sys/unixfd"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Handler is the VM behind the control socket. Its methods are called one at a time.
type Handler interface {
	// Boot owns the files of disks and network, also after an error. The server closes the others.
	Boot(vmm.BootConfig) error
	// Restore owns the files of disks and network, also after an error. The server closes the
	// others.
	Restore(vmm.RestoreConfig) (vmm.RestoreResult, error)
	Pause() error
	Resume() (vmm.ResumeResult, error)
	// Save owns no file.
	Save(vmm.SaveConfig) (vmm.SaveResult, error)
	// Capture owns all files.
	Capture(vmm.CaptureConfig) (vmm.CaptureResult, error)
	Captured() error
	// Rebase owns all files.
	Rebase(bases [][]extent.Extent) error
	// WriteWorkingSet owns no file.
	WriteWorkingSet(f *os.File) (vmm.WorkingSetResult, error)
	// Populate owns no file.
	Populate(f *os.File) (vmm.WorkingSetResult, error)
	// PopulateShell owns no file.
	PopulateShell(f *os.File) (vmm.WorkingSetResult, error)
	// SetNet owns the file, also after an error.
	SetNet(f *os.File) error
	// OpenNet owns the file, also after an error. It may be nil.
	OpenNet(f *os.File) error
	// Plug owns the files of the volumes, also after an error.
	Plug(volumes []vmm.Disk) error
	Status() vmm.Status
}

// serve runs one request. It owns the files, except the ones taken by a handler.
func (s *Server) serve(m wire.Message, files []*os.File) (result any, err error) {
	switch m.Op {
	case wire.OpBoot:
		return s.boot(m, files)
	case wire.OpRestore:
		return s.restore(m, files)
	case wire.OpCapture:
		return s.capture(m, files)
	case wire.OpSave:
		return s.save(m, files)
	case wire.OpRebase:
		return s.rebase(m, files)
	case wire.OpWriteWorkingSet:
		return withWorkingSet(m, files, s.h.WriteWorkingSet)
	case wire.OpPopulate:
		return withWorkingSet(m, files, s.h.Populate)
	case wire.OpPopulateShell:
		return withWorkingSet(m, files, s.h.PopulateShell)
	case wire.OpNet:
		return withNet(m, files, wire.ReadNet, s.h.SetNet)
	case wire.OpNetOpen:
		return withNet(m, files, wire.ReadNetOpen, s.h.OpenNet)
	case wire.OpPlug:
		return s.plug(m, files)
	}
	unixfd.CloseAll(files)
	switch m.Op {
	case wire.OpPause:
		return nil, s.h.Pause()
	case wire.OpResume:
		return s.h.Resume()
	case wire.OpCaptured:
		return nil, s.h.Captured()
	case wire.OpStatus:
		return s.status(), nil
	}
	return nil, fmt.Errorf("unknown operation %q", m.Op)
}

func (s *Server) boot(m wire.Message, files []*os.File) (any, error) {
	c, err := wire.ReadBoot(m, files)
	if err != nil {
		return nil, err
	}
	defer c.CloseSource()
	return nil, s.h.Boot(c)
}

func (s *Server) restore(m wire.Message, files []*os.File) (any, error) {
	c, err := wire.ReadRestore(m, files)
	if err != nil {
		return nil, err
	}
	defer c.CloseSource()
	return s.h.Restore(c)
}

func (s *Server) capture(m wire.Message, files []*os.File) (any, error) {
	c, err := wire.ReadCapture(m, files)
	if err != nil {
		return nil, err
	}
	return s.h.Capture(c)
}

func (s *Server) save(m wire.Message, files []*os.File) (any, error) {
	c, err := wire.ReadSave(m, files)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return s.h.Save(c)
}

func (s *Server) rebase(m wire.Message, files []*os.File) (any, error) {
	bases, err := wire.ReadRebase(m, files)
	if err != nil {
		return nil, err
	}
	return nil, s.h.Rebase(bases)
}

func (s *Server) plug(m wire.Message, files []*os.File) (any, error) {
	volumes, err := wire.ReadPlug(m, files)
	if err != nil {
		return nil, err
	}
	return nil, s.h.Plug(volumes)
}

// withWorkingSet runs a request with a working set's file.
func withWorkingSet(m wire.Message, files []*os.File, do func(*os.File) (vmm.WorkingSetResult, error)) (any, error) {
	f, err := wire.ReadWorkingSet(m, files)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return do(f)
}

// withNet runs a request with a required or optional wire. do owns the wire.
func withNet(m wire.Message, files []*os.File, read func(wire.Message, []*os.File) (*os.File, error),
	do func(*os.File) error) (any, error) {
	f, err := read(m, files)
	if err != nil {
		return nil, err
	}
	return nil, do(f)
}

func (s *Server) status() wire.Status {
	st := wire.Status{Version: wire.Version, Status: s.h.Status()}
	st.Health = wire.ClipHealth(st.Health)
	return st
}
