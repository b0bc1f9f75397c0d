package sandbox

import "strconv"

// Kinds of events: what happens, for those who follow it. A sandbox is created before it is ready,
// and ends once; it can fail before that, or in place of being ready.
const (
	EventCreated    = "sandbox.created"     // its VM is restored, and is going to run
	EventReady      = "sandbox.ready"       // its guest confirmed its identity, and it is listed
	EventFailed     = "sandbox.failed"      // its VM ended by itself, or it did not become ready
	EventEnded      = "sandbox.ended"       // it was killed, and nothing of it is left
	EventPaused     = "sandbox.paused"      // it is a snapshot under its own id
	EventResumed    = "sandbox.resumed"     // it runs again
	EventBranched   = "sandbox.branched"    // a snapshot was made of it
	EventRolledBack = "sandbox.rolled_back" // it was put back to a snapshot
	EventHangs      = "sandbox.hangs"       // its guest's kernel spins at one place, and answers nothing
	EventNetwork    = "sandbox.network"     // it got another network policy

	EventSnapshotCreated = "snapshot.created" // it can be forked from
	EventSnapshotFailed  = "snapshot.failed"  // it was begun, and is not going to be
	EventSnapshotDeleted = "snapshot.deleted"

	EventPool    = "pool.changed"      // the size of a snapshot's pool was set
	EventRefused = "admission.refused" // the host has no room for what was asked for
)

// EventKinds are all kinds of events.
func EventKinds() []string {
	return []string{EventCreated, EventReady, EventFailed, EventEnded, EventPaused, EventResumed, EventBranched,
		EventRolledBack, EventHangs, EventNetwork, EventSnapshotCreated, EventSnapshotFailed, EventSnapshotDeleted,
		EventPool, EventRefused}
}

// Keys of an event's details that name whom it concerns beside its object.
const (
	EventKeySandbox   = "sandbox"
	EventKeySnapshot  = "snapshot"
	EventKeyOwner     = "owner"     // tenant of the object; absent: the operator's
	EventKeyPrincipal = "principal" // who asked for it
	EventKeyReason    = "reason"
	EventKeyCold      = "cold" // of a pause or a resume, without memory: "true"
)

// Events is told what happens: of a sandbox by its id, of a snapshot, a pool or a refused fork by the
// tag. It keeps nobody waiting. The map is the callee's.
type Events func(kind, id string, detail map[string]string)

// About are the details of an event of the sandbox.
func (i Info) About() map[string]string {
	d := map[string]string{EventKeySnapshot: i.SnapshotTag}
	if i.Index > 0 {
		d["index"] = strconv.Itoa(i.Index)
	}
	if i.Reason != "" {
		d[EventKeyReason] = i.Reason
	}
	if i.Owner != "" {
		d[EventKeyOwner] = i.Owner
	}
	return d
}

// About are the details of an event of the snapshot.
func (s SnapshotInfo) About() map[string]string {
	d := map[string]string{}
	for key, v := range map[string]string{"image": s.Image, "parent": s.ParentTag, EventKeySandbox: s.BranchedFrom,
		EventKeyOwner: s.Owner} {
		if v != "" {
			d[key] = v
		}
	}
	return d
}
