package op

import (
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/sandbox"
	"github.com/forkd/forkd/internal/snapshot"
)

// childNeeds is what one child of a snapshot takes of the host; memory is what an idle one takes.
func childNeeds(memory int64, src *launch.Source, l sandbox.Limits) admission.Need {
	return admission.Child(memory, src.Shape(), diskBytes(src.Files.Manifest), l)
}

// oneOfMany is what a VM needs that is no sandbox, or takes the place of one.
func oneOfMany(memory int64, src *launch.Source) admission.Need {
	return admission.Shell(memory, src.Shape())
}

// diskBytes is how much a snapshot's children can write to their disks.
func diskBytes(m *snapshot.Manifest) (sum int64) {
	for _, d := range m.Disks {
		sum += d.Bytes
	}
	return sum
}
