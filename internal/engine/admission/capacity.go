package admission

import (
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Meter reports the host's resources to packages that do not admit VMs.
type Meter struct {
	// Admission holds the figures that Meter reports.
	Admission *Control
}

// Capacity returns the host's resources for sandboxes, and how much of them is promised.
func (m Meter) Capacity() (sandbox.Capacity, error) { return m.Admission.capacity() }

func (a *Control) capacity() (sandbox.Capacity, error) {
	a.turn.Lock()
	defer a.turn.Unlock()
	if err := a.lookLocked(); err != nil {
		return sandbox.Capacity{}, err
	}
	s := state{facts: a.facts, pending: a.Pending(), bounds: a.bounds}
	s.promised = a.promised()
	c := sandbox.Capacity{
		Sandboxes: s.promised.VMs, Coming: s.pending.Promised.VMs, Resources: s.resources(),
		Pressure: a.bounds.pressureOf(a.facts), Admits: a.bounds.pressed(a.facts).admits,
	}
	if slices.ContainsFunc(c.Resources, usedUp) {
		c.Admits = sandbox.AdmitsNone
	}
	return c, nil
}

// usedUp reports whether a resource has no room for new VMs.
func usedUp(r sandbox.Resource) bool { return r.Total > 0 && r.Free == 0 }

func (s state) resources() []sandbox.Resource {
	all := s.promised.Add(s.pending.Promised)
	threads, ofThreads, _ := s.threadsFree()
	return []sandbox.Resource{
		{Name: sandbox.ResourceMemory, Total: s.facts.MemoryTotal, Free: max(0, s.memoryFree()),
			Reserve: s.bounds.memoryReserve, Promised: all.Memory, MayPromise: s.mayPromiseMemory()},
		{Name: sandbox.ResourceDisk, Total: s.facts.DiskTotal, Free: max(0, s.diskFree()),
			Reserve: s.bounds.diskReserve, Promised: all.Disk, MayPromise: s.mayPromiseDisk()},
		{Name: sandbox.ResourceDescriptors, Total: s.facts.MaxFiles, Free: max(0, s.filesFree()), Reserve: spareFiles},
		{Name: sandbox.ResourceThreads, Total: ofThreads, Free: max(0, threads), Reserve: spareThreads},
	}
}
