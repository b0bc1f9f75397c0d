package sandbox

import "strconv"

// Kinds of events, for clients that follow them. A sandbox is created before it is ready, and ends once. It may
// fail before it is ready, or instead of becoming ready.
const (
	EventCreated    = "sandbox.created"     // its VM is restored and about to run
	EventReady      = "sandbox.ready"       // its guest confirmed its identity; it is listed
	EventFailed     = "sandbox.failed"      // its VM ended on its own, or it did not become ready
	EventEnded      = "sandbox.ended"       // it was killed and removed
	EventPaused     = "sandbox.paused"      // it is a snapshot under its own id
	EventResumed    = "sandbox.resumed"     // it runs again
	EventBranched   = "sandbox.branched"    // a snapshot of it was made
	EventRolledBack = "sandbox.rolled_back" // it was rolled back to a snapshot
	EventHangs      = "sandbox.hangs"       // its guest's kernel spins at one address and does not respond
	EventOOM        = "sandbox.oom"         // its guest's kernel killed a process for lack of memory
	EventNetwork    = "sandbox.network"     // its network policy changed

	EventSnapshotCreated = "snapshot.created" // it can be forked from
	EventSnapshotFailed  = "snapshot.failed"  // it was begun, and will not become ready
	EventSnapshotDeleted = "snapshot.deleted"

	EventPool    = "pool.changed"      // the size of a snapshot's pool was set
	EventRefused = "admission.refused" // the host has no room for the request
)

// EventKinds returns all kinds of events.
func EventKinds() []string {
	return []string{EventCreated, EventReady, EventFailed, EventEnded, EventPaused, EventResumed, EventBranched,
		EventRolledBack, EventHangs, EventOOM, EventNetwork, EventSnapshotCreated, EventSnapshotFailed, EventSnapshotDeleted,
		EventPool, EventRefused}
}

// Keys of an event's details. They name the other objects and callers involved.
const (
	EventKeySandbox   = "sandbox"
	EventKeySnapshot  = "snapshot"
	EventKeyOwner     = "owner"     // tenant of the object; absent if it is the operator's
	EventKeyPrincipal = "principal" // the caller
	EventKeyReason    = "reason"
	EventKeyCold      = "cold" // "true" for a pause or a resume without memory
)

// Events reports an event. The id is a sandbox's id; for a snapshot, a pool or a refused fork it is the tag.
// Events must not block. It owns the map.
type Events func(kind, id string, detail map[string]string)

// About returns the details of the sandbox's events.
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

// About returns the details of the snapshot's events.
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
