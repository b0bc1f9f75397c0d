package live

import (
	"time"

	"github.com/forkd/forkd/internal/store/extent"
)

// groupRound is the time between two rounds of a capture that waits for its group.
const groupRound = 50 * time.Millisecond

// awaitGroup waits until all members of the capture's cut can be paused. Meanwhile the guest runs, and further rounds
// copy what it writes, so that the wait does not make its pause longer.
func (k *captureOp) awaitGroup() error {
	if k.group == nil {
		return nil
	}
	if err := k.group.Ready(); err != nil {
		return err
	}
	for {
		now, err := k.group.Pause(groupRound)
		if now || err != nil {
			return err
		}
		if err := k.catchUp(); err != nil {
			return err
		}
	}
}

// catchUp copies what was written since the last round, if it is much.
func (k *captureOp) catchUp() error {
	if k.tracker == nil {
		return nil
	}
	if err := k.find(k.tracker.Written); err != nil {
		return err
	}
	if extent.Bytes(k.left) <= k.enough() {
		return nil
	}
	k.res.Rounds++
	return k.round(extent.Bytes(k.left) - k.spare())
}

// groupPaused reports the pause to the cut.
func (k *captureOp) groupPaused() error {
	if k.group == nil {
		return nil
	}
	return k.group.Paused()
}

// groupDone waits until the whole group is paused.
func (k *captureOp) groupDone() error {
	if k.group == nil {
		return nil
	}
	defer k.lap("group")
	return k.group.Done()
}
