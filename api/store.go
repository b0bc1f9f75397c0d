package api

// CompactRequest is the body of POST /v1/snapshots/{tag}/compact.
type CompactRequest struct {
	To string `json:"to" doc:"Name of the new snapshot" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 letters, digits, - or _"`
}

// RenameRequest is the body of POST /v1/snapshots/{tag}/rename.
type RenameRequest struct {
	To string `json:"to" doc:"New name of the snapshot" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 letters, digits, - or _"`
}

// CollectRequest is the body of POST /v1/store/gc. The body may be absent.
type CollectRequest struct {
	DryRun bool `json:"dry_run,omitempty" doc:"List unused files without removing them"`
}

// CollectResult lists the layers a collection removed, or would remove.
type CollectResult struct {
	DryRun    bool     `json:"dry_run" doc:"Whether the files were only listed"`
	Layers    []string `json:"layers" doc:"IDs of the layers" nullable:"false"`
	Temporary int      `json:"temporary" doc:"Leftovers of interrupted writes"`
	Bytes     int64    `json:"bytes" doc:"Bytes of the disk, all together"`
}
