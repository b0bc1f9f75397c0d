package api

// PruneRequest is the body of POST /v1/store/prune. It may be absent.
type PruneRequest struct {
	DryRun bool `json:"dry_run,omitempty" doc:"Only list the snapshots"`
}

// PruneResult lists the snapshots that are due by the rules of their labels.
type PruneResult struct {
	DryRun    bool          `json:"dry_run" doc:"Whether the snapshots were only listed"`
	Snapshots []DueSnapshot `json:"snapshots" doc:"Due snapshots, by tag" nullable:"false"`
	Bytes     int64         `json:"bytes" doc:"Bytes of the disk that the removed ones free together. Layers that other snapshots need do not count"`
}

// DueSnapshot is a snapshot that is due.
type DueSnapshot struct {
	Tag   string `json:"tag" doc:"Name of the snapshot"`
	Owner string `json:"owner,omitempty" doc:"Owning tenant; absent: the operator"`
	Why   string `json:"why" doc:"The rule, for people"`
	Held  string `json:"held,omitempty" doc:"Why it stays for now; absent if it was removed, or would be"`
	Bytes int64  `json:"bytes" doc:"Its part of all bytes; a layer shared by due snapshots counts at the first of them"`
}
