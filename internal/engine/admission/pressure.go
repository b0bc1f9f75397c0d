package admission

import (
	"fmt"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// pressed is an admission level, and the pressure that causes it.
type pressed struct {
	admits string
	by     sandbox.PressureOf
}

// memoryIsShort is a divisor: memory pressure counts only if less than this fraction of the host's
// memory is available. A sandbox at its own memory limit stalls as well, and the kernel counts that
// for the whole host. Without this check a guest could block all forks.
const memoryIsShort = 4

// pressureOf returns the host's pressure with its limits.
func (b bounds) pressureOf(f hostproc.Facts) []sandbox.PressureOf {
	p := b.pressure
	return []sandbox.PressureOf{
		{Name: "cpu", Some: f.Pressure.CPU, Fewer: p.CPU.Fewer, None: p.CPU.None},
		{Name: "memory", Some: f.Pressure.Memory, Fewer: p.Memory.Fewer, None: p.Memory.None},
		{Name: "io", Some: f.Pressure.IO, Fewer: p.IO.Fewer, None: p.IO.None},
	}
}

// pressed returns the most severe pressure.
func (b bounds) pressed(f hostproc.Facts) pressed {
	worst := pressed{admits: sandbox.AdmitsAll}
	for _, p := range b.pressureOf(f) {
		if p.Name == "memory" && f.MemoryAvailable > f.MemoryTotal/memoryIsShort {
			continue
		}
		switch {
		case p.None > 0 && p.Some >= p.None:
			return pressed{sandbox.AdmitsNone, p}
		case p.Fewer > 0 && p.Some >= p.Fewer:
			worst = pressed{sandbox.AdmitsFewer, p}
		}
	}
	return worst
}

// MemoryPressure describes the memory pressure if it reduces admission. Otherwise, or if it is
// unknown, it returns an empty string.
func (m Meter) MemoryPressure() string {
	a := m.Admission
	a.turn.Lock()
	defer a.turn.Unlock()
	if a.lookLocked() != nil || a.facts.MemoryAvailable > a.facts.MemoryTotal/memoryIsShort {
		return ""
	}
	if p, some := a.bounds.pressure.Memory, a.facts.Pressure.Memory; p.Fewer > 0 && some >= p.Fewer {
		return fmt.Sprintf("the host is short of memory: for %.0f %% of the last 10 s work waited for it", some)
	}
	return ""
}

func (p pressed) refusal() error {
	bound, what := p.by.None, "no VM is made"
	if p.admits == sandbox.AdmitsFewer {
		bound, what = p.by.Fewer, "no shell is made"
	}
	return sandbox.Errorf(sandbox.ErrBusy, sandbox.ReasonHostPressure,
		"the host is under pressure: for %.0f %% of the last 10 s work waited for %s, and from %g %% on %s",
		p.by.Some, p.by.Name, bound, what)
}
