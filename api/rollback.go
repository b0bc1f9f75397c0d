package api

// RollbackRequest is the body of POST /v1/sandboxes/{id}/rollback.
type RollbackRequest struct {
	SnapshotTag string `json:"snapshot_tag" doc:"Snapshot to go back to: one that the sandbox came from, or that was branched from it" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 letters, digits, - or _"`
}
