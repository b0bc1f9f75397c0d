package live

import (
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Controller connects a machine to the control socket: it implements Handler of package server. It
// sequences the daemon's requests; Machine implements the operations.
type Controller struct {
	Machine *Machine // the shell or VM that it controls

	writing chan error // receives the end of the last capture; nil without one
}

// OnVCPUThreads runs do on the thread of every vCPU, for settings of these threads alone. The
// machine is a shell.
func (c *Controller) OnVCPUThreads(do func() error) error {
	if err := c.Machine.lockIn(vmm.StateShell); err != nil {
		return err
	}
	defer c.Machine.mu.Unlock()
	return c.Machine.cpus.each(do)
}

// Boot implements server.Handler.
func (c *Controller) Boot(b vmm.BootConfig) error {
	yieldProcess()
	return c.Machine.Boot(b)
}

// Restore implements server.Handler.
func (c *Controller) Restore(r vmm.RestoreConfig) (vmm.RestoreResult, error) {
	res, err := c.Machine.Restore(r)
	if !r.Prepare && r.Gate == nil {
		yieldProcess()
	}
	return res, err
}

// Pause implements server.Handler.
func (c *Controller) Pause() error { return c.Machine.Pause() }

// Resume implements server.Handler.
func (c *Controller) Resume() (vmm.ResumeResult, error) {
	at, err := c.Machine.Resume()
	yieldProcess()
	return vmm.ResumeResult{RunningAt: at}, err
}

// Save implements server.Handler.
func (c *Controller) Save(r vmm.SaveConfig) (vmm.SaveResult, error) {
	// State first: the guest's time-stamp counters advance while its memory is written.
	b, err := c.Machine.SaveState()
	if err != nil {
		return vmm.SaveResult{}, err
	}
	if _, err := r.State.Write(b); err != nil {
		return vmm.SaveResult{}, err
	}
	n, err := c.Machine.SaveMemory(r.Memory)
	if err != nil {
		return vmm.SaveResult{}, err
	}
	written, err := c.Machine.SaveDisks(r.Disks)
	if err == nil && r.Digest != nil {
		err = c.Machine.SaveDigest(r.Digest)
	}
	return vmm.SaveResult{MemoryBytes: n, StateBytes: int64(len(b)), DiskBytes: written}, err
}

// Capture implements server.Handler.
func (c *Controller) Capture(r vmm.CaptureConfig) (vmm.CaptureResult, error) {
	if c.writing != nil { // a capture without a Captured call; two would take twice the buffer
		<-c.writing
		c.writing = nil
	}
	finish, res, err := c.Machine.Capture(r)
	if err != nil {
		return res, err
	}
	writing := make(chan error, 1)
	c.writing = writing
	go func() { writing <- finish() }()
	return res, nil
}

// Captured implements server.Handler.
func (c *Controller) Captured() error {
	if c.writing == nil {
		return c.Machine.disks.saveMaps() // a failed capture may have left maps unsaved
	}
	err := <-c.writing
	c.writing = nil
	return err
}

// Rebase implements server.Handler.
func (c *Controller) Rebase(bases [][]extent.Extent) error {
	if c.writing != nil {
		closeBases(bases)
		return fmt.Errorf("%w: a capture is being written", vmm.ErrState)
	}
	return c.Machine.Rebase(bases)
}

// SetNet implements server.Handler.
func (c *Controller) SetNet(f *os.File) error { return c.Machine.SetNet(f) }

// OpenNet implements server.Handler.
func (c *Controller) OpenNet(f *os.File) error { return c.Machine.OpenNet(f) }

// Plug implements server.Handler.
func (c *Controller) Plug(volumes []vmm.Disk) error {
	if c.writing != nil {
		vmm.CloseDisks(volumes)
		return fmt.Errorf("%w: a capture is being written", vmm.ErrState)
	}
	return Plug(c.Machine, volumes)
}

// Status implements server.Handler.
func (c *Controller) Status() vmm.Status { return c.Machine.Status() }

// WriteWorkingSet implements server.Handler.
func (c *Controller) WriteWorkingSet(f *os.File) (vmm.WorkingSetResult, error) {
	b, r, err := c.Machine.WorkingSet()
	if err == nil {
		_, err = f.Write(b)
	}
	return r, err
}

// Populate implements server.Handler. It reads by position, since children share the open file.
func (c *Controller) Populate(f *os.File) (vmm.WorkingSetResult, error) { return c.Machine.Populate(f) }

// PopulateShell implements server.Handler.
func (c *Controller) PopulateShell(f *os.File) (vmm.WorkingSetResult, error) {
	return PopulateShell(c.Machine, f)
}
