package api

// PromoteParent is the fate of the old state of the sandbox that loses its place.
type PromoteParent string

const (
	// PromotePause keeps it in a snapshot.
	PromotePause PromoteParent = "pause"
	// PromoteKill discards it.
	PromoteKill PromoteParent = "kill"
)

// PromoteRequest is the body of POST /v1/sandboxes/{id}/promote. All fields may be absent.
type PromoteRequest struct {
	Parent PromoteParent `json:"parent,omitempty" doc:"What becomes of the other sandbox's old state: pause keeps it in a snapshot, kill discards it" enum:"pause,kill" default:"pause"`
	Place  string        `json:"place,omitempty" doc:"Sandbox that loses its place; absent: the nearest that this one was forked from" pattern:"^[A-Za-z0-9_-]{0,64}$" patternDescription:"a sandbox id"`
	Tag    string        `json:"tag,omitempty" doc:"Name of the snapshot that keeps the old state; absent: one is made up" pattern:"^[A-Za-z0-9_-]{0,64}$" patternDescription:"1 to 64 letters, digits, - or _"`
}

// PromoteResult is the result of a promotion.
type PromoteResult struct {
	Sandbox      SandboxInfo `json:"sandbox" doc:"The sandbox in its new place: with that one's id, addresses and settings"`
	PromotedFrom string      `json:"promoted_from" doc:"Its id until then, which names no sandbox now"`
	KeptIn       string      `json:"kept_in,omitempty" doc:"Snapshot with the old state, to fork or to roll back to; absent if it was discarded"`
}
