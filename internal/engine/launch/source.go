package launch

import (
	"os"

	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Source is an open snapshot, shared by the children of one fork.
type Source struct {
	Tag        string            // of the snapshot
	Files      *snapshot.Files   // open until Close
	Restore    vmm.RestoreConfig // memory, state and disks
	Backing    [][]layer.ID      // layers of the writable disks
	WorkingSet *os.File          // working set of children; nil if not recorded
	EvalSet    *os.File          // working set of a first evaluation; nil if not recorded
	ExecSet    *os.File          // working set of a first program; nil if not recorded
	VolumeSet  *os.File          // working set of children with a volume; nil if not recorded
	Agent      snapshot.Agent    // of its guests
	// Tops makes the overlay files of disks that are volumes of the sandbox which gets the VM. If it is set, the
	// source is for one VM only.
	Tops map[int]vmproc.Top
	late bool   // part of it may have to be fetched
	free func() // closes the files
	// Leave is called by Close. It ends the use of the snapshot the opener registered. It may be
	// nil.
	Leave func()
}

// NewSource takes over the files; Close closes them.
func NewSource(files *snapshot.Files) *Source {
	s := &Source{Tag: files.Manifest.Tag, Files: files, Agent: files.Manifest.Agent, free: files.Close}
	s.Restore.Disks, s.Backing = sourceDisks(s.Files)
	s.Restore.Memory = MemoryExtents(s.Files.Memory.Image)
	s.Restore.State = s.Files.State()
	s.late = len(s.Restore.Served()) > 0
	s.WorkingSet, s.EvalSet = s.Files.File(snapshot.WorkingSetFile), s.Files.File(snapshot.EvalSetFile)
	s.ExecSet, s.VolumeSet = s.Files.File(snapshot.ExecSetFile), s.Files.File(snapshot.VolumeSetFile)
	return s
}

// Close closes the files and calls Leave.
func (s *Source) Close() {
	s.free()
	if s.Leave != nil {
		s.Leave()
	}
}

// Hash returns the content hash. It is empty for a draft.
func (s *Source) Hash() string {
	if s.Files == nil {
		return ""
	}
	return s.Files.ContentHash
}

// Shape returns the shape of the VM.
func (s *Source) Shape() vmspec.Shape { return s.Files.Manifest.Shape }

// Shared returns a copy of the source for another user. Closing the copy calls free.
func (s *Source) Shared(free func()) *Source {
	out := *s
	out.free = free
	return &out
}

// NewDraftSource returns a source of files that are not a snapshot yet. Their opener closes them.
func NewDraftSource(tag string, agent snapshot.Agent, c vmm.RestoreConfig) *Source {
	return &Source{Tag: tag, Agent: agent, Restore: c, free: func() {}}
}
