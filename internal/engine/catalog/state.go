package catalog

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// state is what is under way for a tag. Whether there is a snapshot of that tag, and a
// good one, only the disk knows.
type state uint8

const (
	idle     state = iota // nothing is under way
	writing               // a draft of it is being written; listed
	failed                // a branch failed after its caller had left; listed until deleted or written anew
	deleting              // its snapshot is being deleted; no fork may begin
)

var stateNames = [...]string{idle: "idle", writing: "being written", failed: "failed", deleting: "being deleted"}

func (s state) String() string { return stateNames[s] }

// event is what moves a tag to another state.
type event uint8

const (
	begin   event = iota // a draft has the tag
	end                  // the draft was committed, or given up
	fail                 // the draft of a branch was given up, and its caller had left
	forget               // a failed branch is taken off the list
	remove               // a deletion begins
	removed              // it has ended, either way
)

// moves are the legal ones. Every other is an ErrConflict.
var moves = map[state]map[event]state{
	idle:     {begin: writing, remove: deleting},
	writing:  {end: idle, fail: failed},
	failed:   {begin: writing, forget: idle},
	deleting: {removed: idle},
}

// entry is what the catalog has in memory of a tag. There is none for a tag that is idle
// and has no users.
type entry struct {
	state state
	// users is how many forks from it are under way. They may outlast its deletion.
	users int
	// info is what is listed while it is being written, or has failed.
	info sandbox.SnapshotInfo
	// forksWait has forks wait for the end of the writing instead of refusing them.
	forksWait bool
	// settled is closed when the tag leaves the state, if that is writing or deleting.
	settled chan struct{}
}

// refusal says why the snapshot cannot be used as long as the tag is in its state; nil
// when it is idle.
func (e entry) refusal(tag string) error {
	switch e.state {
	case deleting:
		return sandbox.Errorf(sandbox.ErrNotFound, "", "snapshot %s is being deleted", tag)
	case failed:
		return sandbox.Detailed(sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonBranchFailed,
			"snapshot %s could not be written: %s", tag, e.info.Warning), "tag", tag)
	case writing:
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonSnapshotNotReady, "snapshot %s is being written", tag)
	}
	return nil
}
