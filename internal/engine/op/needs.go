package op

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// admitChildren admits all children of a fork, or returns an error. ready is the number of ready
// shells.
func admitChildren(o *Ops, src *launch.Source, req sandbox.ForkRequest, ready int) (*admission.Grant, error) {
	if (vmproc.Bounds{Limits: req.Limits}).Apart() { // the fork uses no shells
		ready = 0
	}
	disk := diskBytes(src.Files.Manifest)
	return o.admission.VMs(req.N, ready, admission.Child(o.cfg.ChildMemory, src.Shape(), disk, req.Limits))
}

// oneOfMany returns the resources of a VM that is not a sandbox or replaces the VM of one.
func oneOfMany(memory int64, src *launch.Source) admission.Need {
	return admission.Shell(memory, src.Shape())
}

// diskBytes returns how much a snapshot's children can write to their disks.
func diskBytes(m *snapshot.Manifest) (sum int64) {
	for _, d := range m.Disks {
		sum += d.Bytes
	}
	return sum
}
