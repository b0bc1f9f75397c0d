package catalog

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// state is the running operation on a tag. Whether a valid snapshot of that tag exists is known
// only on disk.
type state uint8

const (
	idle     state = iota // no running operation
	writing               // a draft of it is being written; listed
	failed                // a branch failed after its caller had left; listed until deleted or written again
	deleting              // its snapshot is being deleted; no fork may begin
	renaming              // its snapshot gets another tag; forks wait
)

var stateNames = [...]string{idle: "idle", writing: "being written", failed: "failed", deleting: "being deleted",
	renaming: "being renamed"}

func (s state) String() string { return stateNames[s] }

// event moves a tag to another state.
type event uint8

const (
	begin   event = iota // a draft takes the tag
	end                  // the draft was committed or discarded
	fail                 // the draft of a branch was discarded after its caller had left
	forget               // a failed branch is removed from the list
	remove               // a deletion begins
	removed              // the deletion has ended, successfully or not
	rename               // a renaming begins
	renamed              // the renaming has ended, successfully or not
)

// moves lists the legal transitions. Any other transition returns ErrConflict.
var moves = map[state]map[event]state{
	idle:     {begin: writing, remove: deleting, rename: renaming},
	writing:  {end: idle, fail: failed},
	failed:   {begin: writing, forget: idle},
	deleting: {removed: idle},
	renaming: {renamed: idle},
}

// entry is the in-memory state of a tag. A tag that is idle and has no users has no entry.
type entry struct {
	state state
	// users is the number of running forks from it. They may outlast its deletion.
	users int
	// info is listed while the snapshot is being written, or has failed.
	info sandbox.SnapshotInfo
	// forksWait makes forks wait for the end of the writing instead of being refused.
	forksWait bool
	// settled is closed when the tag leaves the state writing, deleting or renaming.
	settled chan struct{}
}

// refusal returns an error with the reason why the snapshot cannot be used in the tag's current
// state, or nil if it is idle.
func (e entry) refusal(tag string) error {
	switch e.state {
	case deleting:
		return sandbox.Errorf(sandbox.ErrNotFound, "", "snapshot %s is being deleted", tag)
	case failed:
		return sandbox.Detailed(sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonBranchFailed,
			"snapshot %s could not be written: %s", tag, e.info.Warning), "tag", tag)
	case writing, renaming:
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonSnapshotNotReady, "snapshot %s is %s", tag, e.state)
	}
	return nil
}
