package live

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/vmm"
	"github.com/forkd/forkd/internal/vm/workingset"
)

// Limits of working sets, in bytes. Half of guest memory is another one. A fork from a registry fetches all recorded
// pages first. Every child has the populated ones, before it is known to need them.
const (
	maxRecorded  = 256 << 20
	maxPopulated = 64 << 20
)

// shellBlocks limits a shell's page tables for its child's reads. Each block of 2 MiB needs two
// pages, one of this process and one of KVM, and a shell is to cost 2 MiB at most.
const shellBlocks = 24

func recordLimit(memory int64) int64 { return min(maxRecorded, memory/2) }

func populateLimit(memory int64) int64 { return min(maxPopulated, memory/2) }

// WorkingSet returns the memory touched by a paused machine since its restore.
func (m *Machine) WorkingSet() (b []byte, r vmm.WorkingSetResult, err error) {
	if err := m.lockIn(vmm.StatePaused); err != nil {
		return nil, r, err
	}
	defer m.mu.Unlock()
	var w workingset.Writer
	left := recordLimit(m.mem.Size())
	err = m.mem.Accessed(func(offset, length int64, written bool) error {
		if left -= length; left < 0 {
			return fmt.Errorf("the guest has touched more than %d bytes", recordLimit(m.mem.Size()))
		}
		count(&r, length, written)
		return w.Add(workingset.Run{Run: extent.Run{Offset: offset, Length: length}, Written: written})
	})
	if err != nil {
		return nil, r, fmt.Errorf("find working set: %w", err)
	}
	return w.Bytes(m.mem.Size()), r, nil
}

// Populate maps a working set's pages while the guest is paused, preferably before it begins, at
// its gate. A damaged set changes nothing. A kernel with partial support does its part. Pages
// mapped by an earlier call are skipped.
func (m *Machine) Populate(f io.ReaderAt) (r vmm.WorkingSetResult, err error) {
	if err := m.lockIn(vmm.StateArmed, vmm.StatePrepared, vmm.StateRunning); err != nil {
		return r, err
	}
	defer m.mu.Unlock()
	return populateLocked(m, f, func(set workingset.Set) workingset.Set { return set })
}

// PopulateShell maps the part of a working set that needs only page tables: the read-only pages. It
// runs before the child is known.
func PopulateShell(m *Machine, f io.ReaderAt) (r vmm.WorkingSetResult, err error) {
	if err := m.lockIn(vmm.StatePrepared); err != nil {
		return r, err
	}
	defer m.mu.Unlock()
	return populateLocked(m, f, func(set workingset.Set) workingset.Set { return set.ReadOnly(shellBlocks) })
}

func populateLocked(m *Machine, f io.ReaderAt,
	choose func(workingset.Set) workingset.Set) (r vmm.WorkingSetResult, err error) {
	set, err := workingset.Read(f, m.mem.Size())
	if err != nil {
		return r, err
	}
	set = choose(set)
	for _, done := range m.populated {
		set = set.Without(done)
	}
	// From now on, a page touched by the guest itself would no longer be mapped in bulk. KVM also
	// needs a vCPU that does not run.
	running := m.state == vmm.StateRunning
	if running {
		m.cpus.park()
		if m.ending.Load() {
			return r, fmt.Errorf("%w: it has ended", vmm.ErrState)
		}
		defer m.runLocked()
	}
	p := population{mem: m.mem, cpu: m.cpus.all[0].cpu, set: set}
	if err = p.run(); err == nil {
		m.populated = append(m.populated, set)
	}
	if running { // for its first evaluation; no pages are populated after it
		m.populated = nil
	}
	return p.res, err
}

// population maps a working set's pages while no vCPU runs.
type population struct {
	mem *guestmem.Map
	cpu *kvm.VCPU // the vCPU used for KVM's mapping call
	set workingset.Set
	res vmm.WorkingSetResult
}

func (p *population) run() error {
	start := time.Now()
	if err := p.mapHost(true); err != nil {
		return err
	}
	mapped := time.Now()
	p.res.Map = mapped.Sub(start)
	err := p.mapGuest()
	p.res.KVM = time.Since(mapped)
	return err
}

// mapHost maps the runs of one kind in this process.
func (p *population) mapHost(written bool) error {
	for run := range p.runs() {
		if run.Written != written {
			continue
		}
		if err := p.mem.Populate(run.Offset, run.Length, written); errors.Is(err, errors.ErrUnsupported) {
			return nil
		} else if err != nil {
			return err
		}
		count(&p.res, run.Length, written)
	}
	return nil
}

// mapGuest maps all runs in the guest's page table. This also maps read-only pages in this process.
func (p *population) mapGuest() error {
	for run := range p.joined() {
		if err := p.preFault(run); errors.Is(err, errors.ErrUnsupported) {
			return p.mapHost(false)
		} else if err != nil {
			return err
		}
	}
	for run := range p.runs() {
		if !run.Written {
			count(&p.res, run.Length, false)
		}
	}
	return nil
}

// joined yields the runs of either kind, adjacent ones merged.
func (p *population) joined() iter.Seq[extent.Run] {
	return func(yield func(extent.Run) bool) {
		var whole extent.Run
		for run := range p.runs() {
			if whole.Length > 0 && whole.End() == run.Offset {
				whole.Length += run.Length
				continue
			}
			if whole.Length > 0 && !yield(whole) {
				return
			}
			whole = run.Run
		}
		if whole.Length > 0 {
			yield(whole)
		}
	}
}

func count(r *vmm.WorkingSetResult, length int64, written bool) {
	r.Runs++
	if written {
		r.WrittenPages += length / guestmem.PageSize
	} else {
		r.ReadPages += length / guestmem.PageSize
	}
}

// runs yields the runs of the set up to the limit.
func (p *population) runs() iter.Seq[workingset.Run] {
	return func(yield func(workingset.Run) bool) {
		left := populateLimit(p.mem.Size())
		for r := range p.set.Runs() {
			if left -= r.Length; left < 0 || !yield(r) {
				return
			}
		}
	}
}

// preFault maps one run, which may lie on both sides of the hole below 4 GiB.
func (p *population) preFault(run extent.Run) error {
	for _, r := range p.mem.Regions() {
		part := run.Clip(r.Offset, r.Offset+r.Size)
		if part.Length <= 0 {
			continue
		}
		if err := p.cpu.PreFault(r.GPA+uint64(part.Offset-r.Offset), uint64(part.Length)); err != nil {
			return err
		}
	}
	return nil
}
