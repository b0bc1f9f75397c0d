package vmm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/forkd/forkd/internal/cowdisk"
	"github.com/forkd/forkd/internal/guestmem"
	"github.com/forkd/forkd/internal/uffd"
	"github.com/forkd/forkd/internal/vmmctl"
)

// Controller puts a machine behind the control socket.
type Controller struct {
	Machine *Machine
	Vsock   net.Listener
	// Dial connects the guest to a port of the host.
	Dial func(ctx context.Context, port uint32) (net.Conn, error)

	writing chan error // of the last capture: its end; nil: there was none
}

var _ vmmctl.Handler = (*Controller)(nil)

// Boot implements vmmctl.Handler.
func (c *Controller) Boot(r vmmctl.BootRequest) error {
	g := Guest{Kernel: r.Kernel, Cmdline: r.Cmdline, GenID: r.GenID, Backends: c.backends(r.Disks, r.CID)}
	if r.Initrd != nil {
		st, err := r.Initrd.Stat()
		if err != nil {
			return err
		}
		g.Initrd, g.InitrdSize = r.Initrd, st.Size()
	}
	yieldProcess()
	return c.Machine.Boot(g)
}

// Restore implements vmmctl.Handler.
func (c *Controller) Restore(r vmmctl.RestoreRequest) (res vmmctl.RestoreResult, err error) {
	last := time.Now()
	lap := func(name string) {
		took := time.Since(last).Nanoseconds()
		last = time.Now()
		switch name {
		case "map":
			res.MapNanos = took
		case "state":
			res.StateNanos = took
		case "resume":
			res.ResumeNanos = took
		}
	}
	st, err := r.State.Stat()
	if err != nil {
		return res, err
	}
	err = c.Machine.Restore(Image{
		// By position: all children of a fork hold the same open file, and with it one offset.
		State:    io.NewSectionReader(r.State, 0, st.Size()),
		Memory:   func(m *guestmem.Map) error { return mapMemory(m, r) },
		GenID:    r.GenID,
		Prepare:  r.Prepare,
		Gate:     r.Gate,
		Backends: c.backends(r.Disks, r.CID),
	}, lap)
	if !r.Prepare && r.Gate == nil {
		yieldProcess()
	}
	return res, err
}

func mapMemory(m *guestmem.Map, r vmmctl.RestoreRequest) error {
	if err := mapSegments(m, r.Memory); err != nil || !r.Watch {
		return err
	}
	// Before the first touch, which may be the state's restore. Without it a hot set has less.
	if err := m.Watch(); err != nil && !errors.Is(err, uffd.ErrUnsupported) {
		return err
	}
	return nil
}

func mapSegments(m *guestmem.Map, segments []vmmctl.Segment) error {
	for _, s := range segments {
		var err error
		if s.File == nil {
			err = m.MapZero(s.Offset, s.Length)
		} else {
			err = m.MapFile(s.Offset, s.Length, int(s.File.Fd()), s.FileOffset)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) backends(disks []vmmctl.Disk, cid uint32) Backends {
	b := Backends{CID: cid, Vsock: c.Vsock, Dial: c.Dial}
	for _, d := range disks {
		disk := Disk{File: d.File, ReadOnly: d.ReadOnly, Own: d.Own, Size: d.Size}
		disk.Base = extents(d.Base)
		b.Disks = append(b.Disks, disk)
	}
	return b
}

func extents(segments []vmmctl.Segment) []cowdisk.Extent {
	out := make([]cowdisk.Extent, 0, len(segments))
	for _, s := range segments {
		out = append(out, cowdisk.Extent{File: s.File, FileOffset: s.FileOffset, Offset: s.Offset, Length: s.Length})
	}
	return out
}

// Pause implements vmmctl.Handler.
func (c *Controller) Pause() error { return c.Machine.Pause() }

// Resume implements vmmctl.Handler.
func (c *Controller) Resume() (vmmctl.ResumeResult, error) {
	at, err := c.Machine.Resume()
	yieldProcess()
	return vmmctl.ResumeResult{RunningAt: at}, err
}

// Save implements vmmctl.Handler.
func (c *Controller) Save(memory, state *os.File, disks []*os.File) (vmmctl.SaveResult, error) {
	// State first: the guest's time-stamp counters go on while its memory is written.
	b, err := c.Machine.SaveState()
	if err != nil {
		return vmmctl.SaveResult{}, err
	}
	if _, err := state.Write(b); err != nil {
		return vmmctl.SaveResult{}, err
	}
	n, err := c.Machine.SaveMemory(memory)
	if err != nil {
		return vmmctl.SaveResult{}, err
	}
	written, err := c.Machine.SaveDisks(disks)
	return vmmctl.SaveResult{MemoryBytes: n, StateBytes: int64(len(b)), DiskBytes: written}, err
}

// Capture implements vmmctl.Handler.
func (c *Controller) Capture(r vmmctl.CaptureRequest) (vmmctl.CaptureResult, error) {
	into := Capture{Memory: r.Memory, State: r.State, Index: r.Index, Disks: r.Disks, Live: r.Live, MaxPause: r.MaxPause}
	finish, res, err := c.Machine.Capture(into)
	if err != nil {
		return res, err
	}
	writing := make(chan error, 1)
	c.writing = writing
	go func() { writing <- finish() }()
	return res, nil
}

// Captured implements vmmctl.Handler.
func (c *Controller) Captured() error {
	if c.writing == nil {
		return c.Machine.saveMaps() // what a capture that failed has left to do
	}
	err := <-c.writing
	c.writing = nil
	return err
}

// Rebase implements vmmctl.Handler.
func (c *Controller) Rebase(r vmmctl.RebaseRequest) error {
	bases := make([][]cowdisk.Extent, 0, len(r.Bases))
	for _, b := range r.Bases {
		bases = append(bases, extents(b))
	}
	if c.writing != nil {
		for _, b := range bases {
			Disk{Base: b}.Close()
		}
		return fmt.Errorf("%w: a capture is being written", vmmctl.ErrState)
	}
	return c.Machine.Rebase(bases)
}

// Status implements vmmctl.Handler.
func (c *Controller) Status() vmmctl.Status { return c.Machine.Status() }
