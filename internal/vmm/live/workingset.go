package live

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/forkd/forkd/internal/extent"
	"github.com/forkd/forkd/internal/guestmem"
	"github.com/forkd/forkd/internal/vmm"
	"github.com/forkd/forkd/internal/workingset"
)

// maxWorkingSet bounds what is populated, in bytes; half of the memory is another bound.
const maxWorkingSet = 64 << 20

func (m *Machine) workingSetLimit() int64 { return min(maxWorkingSet, m.mem.Size()/2) }

// WorkingSet is what a paused machine has touched of its memory since its restore.
func (m *Machine) WorkingSet() (b []byte, r vmm.WorkingSetResult, err error) {
	if err := m.lockIn(vmm.StatePaused); err != nil {
		return nil, r, err
	}
	defer m.mu.Unlock()
	var w workingset.Writer
	left := m.workingSetLimit()
	err = m.mem.Accessed(func(offset, length int64, written bool) error {
		if left -= length; left < 0 {
			return fmt.Errorf("the guest has touched more than %d bytes", m.workingSetLimit())
		}
		count(&r, length, written)
		return w.Add(workingset.Run{Run: extent.Run{Offset: offset, Length: length}, Written: written})
	})
	if err != nil {
		return nil, r, fmt.Errorf("find working set: %w", err)
	}
	return w.Bytes(m.mem.Size()), r, nil
}

// Populate maps a working set's pages, while the guest stands still. A damaged set
// changes nothing; a kernel that can do only part of it does that part.
func (m *Machine) Populate(f io.ReaderAt) (r vmm.WorkingSetResult, err error) {
	if err := m.lockIn(vmm.StateRunning); err != nil {
		return r, err
	}
	defer m.mu.Unlock()
	set, err := workingset.Read(f, m.mem.Size())
	if err != nil {
		return r, err
	}
	// From now on each page that the guest touches by itself is one that is not mapped in bulk;
	// and KVM wants a vCPU that does not run.
	m.parkLocked()
	if m.ending.Load() {
		return r, fmt.Errorf("%w: it has ended", vmm.ErrState)
	}
	defer m.runLocked()
	start := time.Now()
	if err := m.populateHost(set, true, &r); err != nil {
		return r, err
	}
	mapped := time.Now()
	r.Map = mapped.Sub(start)
	err = m.populateGuest(set, &r)
	r.KVM = time.Since(mapped)
	return r, err
}

// populateHost maps the runs of one kind in this process.
func (m *Machine) populateHost(set workingset.Set, written bool, r *vmm.WorkingSetResult) error {
	for run := range m.bounded(set) {
		if run.Written != written {
			continue
		}
		if err := m.mem.Populate(run.Offset, run.Length, written); errors.Is(err, errors.ErrUnsupported) {
			return nil
		} else if err != nil {
			return err
		}
		count(r, run.Length, written)
	}
	return nil
}

// populateGuest maps all runs in the guest's page table. What it only reads is
// mapped in this process along with that.
func (m *Machine) populateGuest(set workingset.Set, r *vmm.WorkingSetResult) error {
	for run := range m.bounded(set) {
		if err := m.preFault(run); errors.Is(err, errors.ErrUnsupported) {
			return m.populateHost(set, false, r)
		} else if err != nil {
			return err
		}
		if !run.Written {
			count(r, run.Length, false)
		}
	}
	return nil
}

func count(r *vmm.WorkingSetResult, length int64, written bool) {
	r.Runs++
	if written {
		r.WrittenPages += length / guestmem.PageSize
	} else {
		r.ReadPages += length / guestmem.PageSize
	}
}

// bounded are the runs up to the limit.
func (m *Machine) bounded(set workingset.Set) iter.Seq[workingset.Run] {
	return func(yield func(workingset.Run) bool) {
		left := m.workingSetLimit()
		for r := range set.Runs() {
			if left -= r.Length; left < 0 || !yield(r) {
				return
			}
		}
	}
}

// preFault does one run, which may lie on both sides of the hole below 4 GiB.
func (m *Machine) preFault(run workingset.Run) error {
	for _, r := range m.mem.Regions() {
		part := run.Clip(r.Offset, r.Offset+r.Size)
		if part.Length <= 0 {
			continue
		}
		if err := m.vcpus[0].cpu.PreFault(r.GPA+uint64(part.Offset-r.Offset), uint64(part.Length)); err != nil {
			return err
		}
	}
	return nil
}
