package api

import "time"

// Event is an event of the daemon, in the form of GET /v1/events.
type Event struct {
	ID        uint64            `json:"id" doc:"Grows from event to event, also from one daemon to the next; below 2^53"`
	Time      time.Time         `json:"time" doc:"When it happened, UTC"`
	Kind      string            `json:"kind" doc:"Such as sandbox.ready, snapshot.created; gap: some requested events are gone"`
	Sandbox   string            `json:"sandbox,omitempty" doc:"Sandbox of the event"`
	Snapshot  string            `json:"snapshot,omitempty" doc:"Tag of the event's snapshot, or of the sandbox's"`
	Owner     string            `json:"owner,omitempty" doc:"Owning tenant; absent: the operator"`
	Principal string            `json:"principal,omitempty" doc:"Caller of the action, if known"`
	Labels    map[string]string `json:"labels,omitempty" doc:"Labels that the sandbox or the snapshot had at that time"`
	Detail    map[string]string `json:"detail,omitempty" doc:"Further values, depending on the kind"`
}

// EventGap is the kind of an event that replaces events the daemon no longer has.
const EventGap = "gap"

// EventEnd is the name of the last server-sent event of a stream the daemon ends. Its data is an
// Error.
const EventEnd = "end"
