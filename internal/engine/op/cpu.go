package op

import (
	"io"

	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/vm/cpuid"
	"github.com/forkd/forkd/internal/vm/vmstate"
)

// describeCPU puts into a manifest which CPU the guest has seen, out of the state
// that the VMM has written. It is an account for people: a state without it
// is the VMM's to refuse, at the restore.
func describeCPU(m *snapshot.Manifest, d *snapshot.Draft) {
	f := d.Opened(m.State.File)
	if f == nil {
		return
	}
	st, err := vmstate.Read(io.NewSectionReader(f, 0, vmstate.MaxSize+1)) // the file's offset is the VMM's too
	if err != nil {
		return
	}
	b, err := st.Section(cpuid.Section, cpuid.Version)
	if err != nil {
		return
	}
	table, err := cpuid.Decode(b)
	if err != nil {
		return
	}
	s := cpuid.SignatureOf(table)
	m.CPU = &snapshot.CPU{Vendor: cpuid.Vendor(table), Family: s.Family, Model: s.Model, Stepping: s.Stepping}
	m.CPUFeatures = cpuid.Features(table)
}
