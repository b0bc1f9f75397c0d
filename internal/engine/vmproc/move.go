package vmproc

import (
	"fmt"
	"path/filepath"
)

// A shell of a pool is in its pool's owner's group, and may become a sandbox of another owner. A move takes
// 10 to 18 ms, as the kernel waits for an RCU grace period, so it goes on beside the restore and the
// identity; moves that follow one another wait for one period together. The VM is within its own
// limits all the time, in the old group or in the new one. What memory it was charged for before the move
// stays with the old group, so it is in no use of the new one and does not count against its limit. The
// daemon moves it, by cgroup.procs of groups that the daemon has made; the VMM has no part in it, and sees
// no group from its jail.

// moveTo begins to move the VM to a group with these bounds, if it is in another owner's.
func (m *VM) moveTo(b Bounds) {
	if g := m.group.Load(); g == nil || g.Tenant() == b.Owner {
		return
	}
	done := make(chan struct{})
	m.mu.Lock()
	m.moving = done
	m.mu.Unlock()
	m.sup.watchers.Go(func() {
		defer close(done)
		if err := m.move(b); err != nil {
			m.mu.Lock()
			m.moveErr = fmt.Errorf("move VM to its owner's cgroup: %w", err)
			m.mu.Unlock()
		}
	})
}

func (m *VM) move(b Bounds) error {
	from := m.group.Load()
	to, err := m.sup.bound(m.Shape, b)
	if err != nil {
		return err
	}
	if err := from.Move(to.Group); err != nil {
		to.ended()
		return err
	}
	m.group.Store(to)
	from.ended()
	return m.writeJournal()
}

// Settle waits until the VM is in its owner's group.
func (m *VM) Settle() error {
	m.mu.Lock()
	moving := m.moving
	m.mu.Unlock()
	if moving == nil {
		return nil
	}
	<-moving
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.moveErr
}

// Rehome moves a VM that an earlier daemon left in another place to the group of its bounds.
func (m *VM) Rehome(b Bounds) error {
	m.moveTo(b)
	return m.Settle()
}

// endGroup removes the group of a process that has ended, and says why the kernel killed that.
func (m *VM) endGroup() string {
	_ = m.Settle() // it is in the old group then, or in the new one
	return m.group.Load().ended()
}

// writeJournal has the next daemon find the process, and its group.
func (m *VM) writeJournal() error {
	rec := Record{Version: JournalVersion, Ref: m.Proc.Ref(), Shape: m.Shape, CID: m.CID, Group: m.Group()}
	if err := WriteJSON(filepath.Join(m.Dir, Journal), rec); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}
