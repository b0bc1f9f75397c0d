package op

import (
	"context"
	"errors"
	"sync"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/network"
)

// errAbsent is the error of a copy's sandbox if another sandbox of the copy was not made.
var errAbsent = errors.New("another sandbox of the copy was not made")

// meeting is where the members' forks wait for each other. A guest that runs alone would lose its connections: the
// network refuses packets to members that are not bound.
type meeting struct {
	mu      sync.Mutex
	missing int     // forks that have not arrived
	failed  []error // by copy
	all     chan struct{}
}

func newMeeting(members, copies int) *meeting {
	return &meeting{missing: members, failed: make([]error, copies), all: make(chan struct{})}
}

// arrive reports the failed copies of a member's fork.
func (m *meeting) arrive(failed []error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, err := range failed {
		if err != nil {
			m.failed[i] = err
		}
	}
	if m.missing--; m.missing == 0 {
		close(m.all)
	}
}

// memberCopies is the fork of one member's copies.
type memberCopies struct {
	meeting *meeting
	places  []place // by copy
	arrived sync.Once
}

// leave reports the end of the fork, if it has not arrived before.
func (c *memberCopies) leave(err error) {
	c.arrived.Do(func() {
		failed := make([]error, len(c.places))
		for i := range failed {
			if failed[i] = err; err == nil {
				failed[i] = errAbsent
			}
		}
		c.meeting.arrive(failed)
	})
}

// name gives the children their ids, and a group's also their places.
func (f *forkOp) name() (err error) {
	if f.group == nil {
		f.ids, err = newIDs(f.e, f.req.N)
		return err
	}
	f.src.Restore.KeepMembers = true
	f.members = map[string]sandbox.Member{}
	for _, p := range f.group.places {
		f.ids = append(f.ids, p.id)
		f.members[p.id] = p.as
	}
	return nil
}

// meet waits until all members of the copies are restored, and bound at forkd-net. A child of a copy which lacks one
// fails.
func (f *forkOp) meet(ctx context.Context) {
	if f.group == nil {
		return
	}
	failed := make([]error, len(f.children))
	for i := range f.children {
		b := &f.children[i]
		if failed[i] = b.err; b.err == nil {
			failed[i] = f.bound(ctx, b)
		}
	}
	f.group.arrived.Do(func() { f.group.meeting.arrive(failed) })
	select {
	case <-f.group.meeting.all:
	case <-ctx.Done(): // the children end with the fork
		return
	}
	for i := range f.children {
		b := &f.children[i]
		if b.err != nil || f.group.meeting.failed[i] == nil {
			continue
		}
		if b.err = failed[i]; b.err == nil {
			b.err = errAbsent
		}
		b.m.Discard()
		b.release()
	}
}

// bound waits until forkd-net serves a child's wire.
func (f *forkOp) bound(ctx context.Context, b *child) error {
	if err := b.wire.Await(ctx); err != nil {
		return err
	}
	return network.Serves(f.e.wires, b.wire)
}
