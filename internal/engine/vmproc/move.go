package vmproc

import (
	"fmt"
	"path/filepath"
)

// A pooled shell is in the group of its pool's owner, and may become a sandbox of another owner. A
// move between groups takes 10 to 18 ms, as the kernel waits for an RCU grace period. It therefore
// runs in parallel with the restore and the identity; consecutive moves share one grace period. The
// VM is always within its own limits, in the old group or in the new one. Memory charged before the
// move stays with the old group, so it is not part of the new group's use and does not count
// against its limit. The daemon moves the process by writing cgroup.procs of groups it has made.
// The VMM takes no part in it, and cannot see the groups from its jail.

// moveTo begins to move the VM to a group with these bounds, if it is in another owner's group.
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

// Rehome moves a VM that an earlier daemon left in another owner's group to a group with these
// bounds.
func (m *VM) Rehome(b Bounds) error {
	m.moveTo(b)
	return m.Settle()
}

// endGroup removes the group of an ended process, and returns the reason if the kernel killed the
// process for lack of memory.
func (m *VM) endGroup() string {
	_ = m.Settle() // it is then in the old group or in the new one
	return m.group.Load().ended()
}

// writeJournal writes the journal, so that the next daemon finds the process and its group.
func (m *VM) writeJournal() error {
	rec := Record{Version: JournalVersion, Ref: m.Proc.Ref(), Shape: m.Shape, CID: m.CID, Group: m.Group()}
	if err := WriteJSON(filepath.Join(m.Dir, Journal), rec); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}
