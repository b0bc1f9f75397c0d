package api

// RollbackRequest is the body of POST /v1/sandboxes/{id}/rollback.
type RollbackRequest struct {
	SnapshotTag string `json:"snapshot_tag" doc:"Target snapshot, from the sandbox's ancestry or branched from the sandbox" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 letters, digits, - or _"`
}
