package sandbox

import (
	"encoding/json"
	"strconv"
)

// Kinds of events, for clients that follow them. A sandbox is created before it is ready, and ends once. It may
// fail before it is ready, or instead of becoming ready.
const (
	EventCreated    = "sandbox.created"     // its VM is restored and about to run
	EventReady      = "sandbox.ready"       // its guest confirmed its identity; it is listed
	EventFailed     = "sandbox.failed"      // its VM ended on its own, or it did not become ready
	EventEnded      = "sandbox.ended"       // it was killed and removed
	EventPaused     = "sandbox.paused"      // it is a snapshot under its own id
	EventResumed    = "sandbox.resumed"     // it runs again
	EventMoved      = "sandbox.moved"       // another daemon has taken it; it is paused there
	EventTaken      = "sandbox.taken"       // it was taken from another daemon, and is paused
	EventBranched   = "sandbox.branched"    // a snapshot of it was made
	EventRolledBack = "sandbox.rolled_back" // it was rolled back to a snapshot
	EventHangs      = "sandbox.hangs"       // its guest's kernel spins at one address and does not respond
	EventStalled    = "sandbox.stalled"     // its VM waits for room for its disks
	EventContinued  = "sandbox.continued"   // it runs again after a stall
	EventOOM        = "sandbox.oom"         // its guest's kernel killed a process for lack of memory
	EventNetwork    = "sandbox.network"     // its network policy changed

	EventServiceReady   = "service.ready"   // its check has succeeded
	EventServiceCrashed = "service.crashed" // its program ended without a request

	EventSnapshotCreated = "snapshot.created" // it can be forked from
	EventSnapshotFailed  = "snapshot.failed"  // it was begun, and will not become ready
	EventSnapshotDeleted = "snapshot.deleted"
	EventSnapshotRenamed = "snapshot.renamed" // it has another tag
	EventSnapshotExpired = "snapshot.expired" // a rule of its labels ended it; it is deleted next
	EventSnapshotArrived = "snapshot.arrived" // all of it is here, after forks from a part of it
	EventFetchStalled    = "snapshot.stalled" // its rest does not arrive, for a reason
	EventFetchResumed    = "snapshot.resumed" // its rest arrives again

	EventPool    = "pool.changed"      // the size of a snapshot's pool was set
	EventRefused = "admission.refused" // the host has no room for the request
)

// EventKinds returns all kinds of events.
func EventKinds() []string {
	return []string{EventCreated, EventReady, EventFailed, EventEnded, EventPaused, EventResumed, EventMoved,
		EventTaken, EventBranched, EventRolledBack, EventHangs, EventStalled, EventContinued, EventOOM,
		EventNetwork, EventServiceReady, EventServiceCrashed, EventSnapshotCreated, EventSnapshotFailed,
		EventSnapshotDeleted, EventSnapshotRenamed, EventSnapshotExpired, EventSnapshotArrived, EventFetchStalled,
		EventFetchResumed, EventPool, EventRefused}
}

// Keys of an event's details. They name the other objects and callers involved.
const (
	EventKeySandbox   = "sandbox"
	EventKeySnapshot  = "snapshot"
	EventKeyOwner     = "owner"     // tenant of the object; absent if it is the operator's
	EventKeyPrincipal = "principal" // the caller
	EventKeyReason    = "reason"
	EventKeyLabels    = "labels" // of the object, for TakeLabels
	EventKeyWas       = "was"    // former tag of a renamed snapshot
	EventKeyNode      = "node"   // of the daemon that took a sandbox
	EventKeyCold      = "cold"   // "true" for a pause or a resume without memory
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
	addLabels(d, i.Labels)
	return d
}

// addLabels adds the labels of an event's object, as one text.
func addLabels(detail, set map[string]string) {
	if len(set) == 0 {
		return
	}
	if text, err := json.Marshal(set); err == nil {
		detail[EventKeyLabels] = string(text)
	}
}

// TakeLabels takes the labels out of an event's details.
func TakeLabels(detail map[string]string) (set map[string]string) {
	text, labelled := detail[EventKeyLabels]
	delete(detail, EventKeyLabels)
	if labelled && json.Unmarshal([]byte(text), &set) != nil {
		return nil
	}
	return set
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
	addLabels(d, s.Labels)
	return d
}
