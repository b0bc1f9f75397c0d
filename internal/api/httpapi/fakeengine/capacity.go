package fakeengine

import "github.com/forkd/forkd/internal/domain/sandbox"

// hosts has the engine's methods about the host.
type hosts struct{ e *Engine }

// Capacity returns the resources of a made-up host with 16 GiB.
func (h hosts) Capacity() (sandbox.Capacity, error) {
	c := sandbox.Capacity{Admits: sandbox.AdmitsAll, Pressure: []sandbox.PressureOf{
		{Name: "cpu", Some: 12.5}, {Name: "memory", Fewer: 20, None: 60}, {Name: "io"},
	}}
	memory := sandbox.Resource{Name: sandbox.ResourceMemory, Total: 16 << 30, Free: 12 << 30, Reserve: 256 << 20,
		MayPromise: 512 << 30}
	for _, i := range h.e.List() {
		if i.Status == sandbox.StatusRunning {
			c.Sandboxes++
			memory.Promised += i.Shape.MemoryBytes()
		}
	}
	c.Resources = []sandbox.Resource{memory,
		{Name: sandbox.ResourceDisk, Total: 50 << 30, Free: 40 << 30, Reserve: 256 << 20, Promised: int64(c.Sandboxes) * 4 << 30},
		{Name: sandbox.ResourceDescriptors, Total: 131072, Free: 130000, Reserve: 256},
		{Name: sandbox.ResourceThreads, Total: 32768, Free: 31000, Reserve: 512},
	}
	return c, nil
}
