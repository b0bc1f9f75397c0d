// Package vmctltest provides the fake VM for the tests of packages client and server. Behind a
// control socket it keeps states, shows its files, and reads and writes them, but runs no guest.
// Both packages' own tests use it, so it imports neither. The files of a Boot's or Restore's disks
// and network stay open, for the test to inspect.
package vmctltest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/cut/cuttest"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// VM implements server.Handler.
type VM struct {
	Shape vmspec.Shape // reported in the status
	// HangInPause makes Pause never return.
	HangInPause bool
	// Confined keeps the VM from opening files, even to count its descriptors.
	Confined bool
	// Exit receives the guest's end.
	Exit chan vmm.Exit

	mu    sync.Mutex // guards the fields below
	state vmm.State
	// look is called with every received descriptor, except a table's.
	look func(what string, f *os.File)
	// captures, if not nil, yields a value when a capture has begun. A value sent back ends the
	// capture.
	captures chan struct{}
	calls    []string
	disks    []vmm.Disk
	nets     []*os.File
}

// New returns a VM in a state.
func New(state vmm.State) *VM { return &VM{state: state, Exit: make(chan vmm.Exit, 1)} }

// Look makes the VM call f with every received descriptor.
func (v *VM) Look(f func(what string, file *os.File)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.look = f
}

// Calls returns the requests received by the VM, except status.
func (v *VM) Calls() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.calls
}

// Close closes the disks and the network.
func (v *VM) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	vmm.CloseDisks(v.disks)
	for _, f := range v.nets {
		f.Close()
	}
}

// BlockCaptures makes captures wait for the test.
func (v *VM) BlockCaptures() chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.captures = make(chan struct{})
	return v.captures
}

func (v *VM) call(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.calls = append(v.calls, fmt.Sprintf(format, args...))
}

func (v *VM) show(what string, files ...*os.File) {
	v.mu.Lock()
	look := v.look
	v.mu.Unlock()
	for _, file := range files {
		if look != nil && file != nil {
			look(what, file)
		}
	}
}

func (v *VM) showDisks(op string, disks []vmm.Disk) {
	for _, d := range disks {
		switch {
		case d.Overlay != nil:
			v.show(op+" own", d.Overlay)
		case d.ReadOnly:
			v.show(op+" read-only disk", d.File)
		default:
			v.show(op+" disk", d.File)
		}
		v.showExtents(op+" base", d.Base)
	}
}

func (v *VM) showExtents(what string, list []extent.Extent) {
	for _, s := range list {
		v.show(what, s.File)
	}
}

// Boot reads the kernel. Its content selects the behaviour.
func (v *VM) Boot(c vmm.BootConfig) error {
	v.takeDisks(c.Disks)
	v.takeNet("boot net", c.Net)
	v.showDisks("boot", c.Disks)
	v.show("boot kernel", c.Kernel)
	v.show("boot initrd", c.Initrd)
	kernel := make([]byte, 64)
	n, err := c.Kernel.ReadAt(kernel, 0)
	if n == 0 {
		return fmt.Errorf("read kernel: %w", err)
	}
	v.call("boot %q %q cid %d gen %x disks %d initrd %v",
		kernel[:n], c.Cmdline, c.CID, c.GenID[0], len(c.Disks), c.Initrd != nil)
	v.set(vmm.StateRunning)
	if kind, reason, ok := strings.Cut(string(kernel[:n]), ":"); ok {
		v.Exit <- vmm.Exit{Kind: vmm.ExitKind(kind), Reason: reason}
	}
	return nil
}

// takeDisks takes ownership of the disks, even if the VM does not start.
func (v *VM) takeDisks(disks []vmm.Disk) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.disks = disks
}

// takeNet takes ownership of the VM's wire. The wire may be nil.
func (v *VM) takeNet(what string, f *os.File) {
	v.show(what, f)
	if f != nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.nets = append(v.nets, f)
	}
}

// SetNet implements server.Handler.
func (v *VM) SetNet(f *os.File) error {
	v.takeNet("net file", f)
	v.call("net")
	return nil
}

// OpenNet implements server.Handler.
func (v *VM) OpenNet(f *os.File) error {
	v.takeNet("open net", f)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.state == vmm.StateShell || v.state == vmm.StatePrepared {
		return fmt.Errorf("%w: it is %s", vmm.ErrState, v.state)
	}
	v.calls = append(v.calls, "net-open")
	return nil
}

// Plug implements server.Handler.
func (v *VM) Plug(volumes []vmm.Disk) error {
	v.takeDisks(volumes)
	v.showDisks("plug", volumes)
	v.call("plug")
	return nil
}

// Restore implements server.Handler.
func (v *VM) Restore(c vmm.RestoreConfig) (vmm.RestoreResult, error) {
	v.takeDisks(c.Disks)
	v.takeNet("restore net", c.Net)
	v.showDisks("restore", c.Disks)
	v.show("restore state", c.State)
	v.show("restore gate", c.Gate)
	v.showExtents("restore memory", c.Memory)
	for _, s := range c.Memory {
		if s.File == nil {
			continue
		}
		if _, err := s.File.Stat(); err != nil {
			return vmm.RestoreResult{}, err
		}
	}
	v.call("restore %d extents cid %d prepare %v disks %d", len(c.Memory), c.CID, c.Prepare, len(c.Disks))
	if c.Prepare {
		v.set(vmm.StatePrepared)
	} else {
		v.set(vmm.StateRunning)
	}
	return vmm.RestoreResult{Map: 1, State: 2}, nil
}

func (v *VM) set(s vmm.State) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.state = s
}

// Pause implements server.Handler.
func (v *VM) Pause() error {
	if v.HangInPause {
		time.Sleep(time.Hour) // not select{}: without cgo the runtime would call that a deadlock
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.state != vmm.StateRunning {
		return fmt.Errorf("%w: it is %s", vmm.ErrState, v.state)
	}
	v.state = vmm.StatePaused
	return nil
}

// Resume implements server.Handler.
func (v *VM) Resume() (vmm.ResumeResult, error) {
	v.set(vmm.StateRunning)
	return vmm.ResumeResult{RunningAt: 4711}, nil
}

// Capture implements server.Handler.
func (v *VM) Capture(c vmm.CaptureConfig) (vmm.CaptureResult, error) {
	defer c.Close()
	v.show("capture memory", c.Memory)
	v.show("capture state", c.State)
	v.show("capture index", c.Index)
	v.show("capture own", c.Disks...)
	if c.Digest != nil {
		fmt.Fprintf(c.Digest, "digest beside %d disks", len(c.Disks))
	}
	v.mu.Lock()
	captures := v.captures
	v.mu.Unlock()
	if captures != nil {
		captures <- struct{}{} // the capture has begun
		<-captures             // the capture may end
	}
	if c.Max == time.Nanosecond {
		return vmm.CaptureResult{}, vmm.ErrPause
	}
	if err := cuttest.Pass(c.Cut); err != nil {
		return vmm.CaptureResult{}, err
	}
	for i, f := range []*os.File{c.Memory, c.State, c.Index} {
		if _, err := f.WriteString([]string{"memory", "state", "index"}[i]); err != nil {
			return vmm.CaptureResult{}, err
		}
	}
	return vmm.CaptureResult{Pause: 1, Mechanism: "wp-async", Rounds: 2, Bytes: 6, PausedBytes: 1}, nil
}

// Captured implements server.Handler.
func (v *VM) Captured() error { return nil }

// Rebase returns an error describing the received extents.
func (v *VM) Rebase(bases [][]extent.Extent) error {
	var said []string
	for _, b := range bases {
		v.showExtents("rebase base", b)
		files := map[*os.File]bool{}
		for _, s := range b {
			files[s.File] = true
		}
		said = append(said, fmt.Sprintf("%d extents of %d files", len(b), len(files)))
		vmm.CloseExtents(b)
	}
	return errors.New(strings.Join(said, ", "))
}

// Save implements server.Handler.
func (v *VM) Save(c vmm.SaveConfig) (vmm.SaveResult, error) {
	v.show("save memory", c.Memory)
	v.show("save state", c.State)
	v.show("save disk", c.Disks...)
	if c.Digest != nil {
		fmt.Fprintf(c.Digest, "digest beside %d disks", len(c.Disks))
	}
	for i, d := range c.Disks {
		if _, err := fmt.Fprintf(d, "disk %d", i); err != nil {
			return vmm.SaveResult{}, err
		}
	}
	if _, err := c.Memory.WriteString("memory"); err != nil {
		return vmm.SaveResult{}, err
	}
	_, err := c.State.WriteString("state")
	return vmm.SaveResult{MemoryBytes: 6, StateBytes: 5, DiskBytes: int64(6 * len(c.Disks))}, err
}

// WriteWorkingSet implements server.Handler.
func (v *VM) WriteWorkingSet(set *os.File) (vmm.WorkingSetResult, error) {
	v.show("write-working set", set)
	_, err := set.WriteString("set")
	return vmm.WorkingSetResult{Runs: 2, ReadPages: 3, WrittenPages: 4}, err
}

// Populate implements server.Handler.
func (v *VM) Populate(set *os.File) (vmm.WorkingSetResult, error) {
	v.show("populate set", set)
	b := make([]byte, 8)
	n, _ := set.ReadAt(b, 0)
	if string(b[:n]) != "set" {
		return vmm.WorkingSetResult{}, fmt.Errorf("no working set but %q", b[:n])
	}
	return vmm.WorkingSetResult{Runs: 2, KVM: 5}, nil
}

// PopulateShell implements server.Handler.
func (v *VM) PopulateShell(set *os.File) (vmm.WorkingSetResult, error) {
	v.show("populate-shell set", set)
	return vmm.WorkingSetResult{Runs: 1}, nil
}

// Status returns, as CID, the process's number of open descriptors.
func (v *VM) Status() vmm.Status {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.Confined {
		return vmm.Status{State: v.state, Shape: v.Shape}
	}
	return vmm.Status{State: v.state, Shape: v.Shape, CID: uint32(OpenDescriptors())}
}

// OpenDescriptors returns this process's number of open descriptors.
func OpenDescriptors() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}
