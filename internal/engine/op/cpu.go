package op

import (
	"io"

	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/vm/cpuid"
	"github.com/forkd/forkd/internal/vm/vmstate"
)

// describeCPU records the guest's CPU in the manifest, read from the state written by the VMM. It
// is for information only: if the state has no CPU table, the VMM refuses it at the restore.
func describeCPU(m *snapshot.Manifest, d *snapshot.Draft) {
	f := d.Opened(m.State.File)
	if f == nil {
		return
	}
	st, err := vmstate.Read(io.NewSectionReader(f, 0, vmstate.MaxSize+1)) // not Seek: the VMM shares the file's offset
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
