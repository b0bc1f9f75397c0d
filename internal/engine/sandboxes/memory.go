package sandboxes

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// WithUse fills in the private memory and the resource use of each sandbox's process. It leaves
// them zero for a sandbox that has ended or is just ending.
func (t *Table) WithUse(list []sandbox.Info) []sandbox.Info {
	for i := range list {
		if list[i].PID == 0 {
			continue
		}
		if n, err := hostproc.OwnMemory(list[i].PID); err == nil {
			list[i].OwnMemory = n
		}
		if _, vm, err := t.Running(list[i].ID); err == nil {
			list[i].Use = vm.Use()
		}
	}
	return list
}

// Promised returns the maximum host resources the running sandboxes may use.
func (t *Table) Promised() (sum admission.Promised) {
	t.Each(func(i sandbox.Info) { sum = sum.Add(admission.PromisedTo(i.Shape, i.DiskBytes, i.Limits)) })
	return sum
}
