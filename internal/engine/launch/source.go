package launch

import (
	"os"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Source is an open snapshot, shared by the children of one fork.
type Source struct {
	Tag        string // the snapshot's
	Files      *snapshot.Files
	Restore    vmm.RestoreConfig // memory, state and disks
	Backing    [][]layer.ID      // of the disks that are written to
	WorkingSet *os.File          // nil: nothing is known of what children touch
	EvalSet    *os.File          // nil: nothing is known of what an evaluation touches
	ExecSet    *os.File          // nil: nothing is known of what a first program touches
	Agent      snapshot.Agent    // of its guests
	free       func()            // of the files
	// Leave is called by Close: who has counted itself as a user of the snapshot. It may be nil.
	Leave func()
}

// NewSource takes the files over; Close closes them.
func NewSource(files *snapshot.Files) *Source {
	s := &Source{Tag: files.Manifest.Tag, Files: files, Agent: files.Manifest.Agent, free: files.Close}
	s.Restore.Disks, s.Backing = sourceDisks(s.Files)
	s.Restore.Memory = MemoryExtents(s.Files.Memory.Image)
	s.Restore.State = s.Files.State()
	s.WorkingSet, s.EvalSet = s.Files.File(snapshot.WorkingSetFile), s.Files.File(snapshot.EvalSetFile)
	s.ExecSet = s.Files.File(snapshot.ExecSetFile)
	return s
}

// Close closes the files and calls Leave.
func (s *Source) Close() {
	s.free()
	if s.Leave != nil {
		s.Leave()
	}
}

// Hash names the content; a draft has none yet.
func (s *Source) Hash() string {
	if s.Files == nil {
		return ""
	}
	return s.Files.ContentHash
}

// Shape is that of the VM.
func (s *Source) Shape() vmspec.Shape { return s.Files.Manifest.Shape }

// Shared is the source once more, for another user; free is called when that one closes it.
func (s *Source) Shared(free func()) *Source {
	out := *s
	out.free = free
	return &out
}

// NewDraftSource is a source of files that are no snapshot yet. Who opened them closes them.
func NewDraftSource(tag string, agent snapshot.Agent, c vmm.RestoreConfig) *Source {
	return &Source{Tag: tag, Agent: agent, Restore: c, free: func() {}}
}
