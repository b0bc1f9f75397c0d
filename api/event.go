package api

import "time"

// Event is an event of the daemon, in the form of GET /v1/events.
type Event struct {
	ID        uint64            `json:"id" doc:"Grows from event to event, also from one daemon to the next; below 2^53"`
	Time      time.Time         `json:"time" doc:"When it happened, UTC"`
	Kind      string            `json:"kind" doc:"Such as sandbox.ready, snapshot.created; gap: events that were asked for are not there any more"`
	Sandbox   string            `json:"sandbox,omitempty" doc:"ID of the sandbox that it is about"`
	Snapshot  string            `json:"snapshot,omitempty" doc:"Tag of the snapshot that it is about, or that the sandbox is of"`
	Owner     string            `json:"owner,omitempty" doc:"Tenant whose that is; absent: the operator's"`
	Principal string            `json:"principal,omitempty" doc:"Who asked for it, if that is known"`
	Detail    map[string]string `json:"detail,omitempty" doc:"What else there is to say, by the kind"`
}

// EventGap is the kind of an event that replaces events the daemon no longer has.
const EventGap = "gap"

// EventEnd is the name of the last server-sent event of a stream the daemon ends. Its data is an
// Error.
const EventEnd = "end"
