package api

// MergeSide is one of the two versions of a merge.
type MergeSide string

const (
	MergeOurs   MergeSide = "ours"
	MergeTheirs MergeSide = "theirs"
)

// MergeRequest is the body of POST /v1/sandboxes/{id}/merge. The sandbox in the path is ours.
type MergeRequest struct {
	Theirs  string               `json:"theirs" doc:"Sandbox or snapshot with the changes to take over" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"a sandbox id or a tag"`
	Base    string               `json:"base,omitempty" doc:"Snapshot that both come from; absent: the nearest" pattern:"^[A-Za-z0-9_-]{0,64}$" patternDescription:"1 to 64 letters, digits, - or _"`
	Resolve MergeSide            `json:"resolve,omitempty" doc:"Version to take where both have changed a path in different ways; absent: such a path is a conflict, and no file is changed" enum:"ours,theirs"`
	Paths   map[string]MergeSide `json:"paths,omitempty" doc:"The same for single paths"`
	DryRun  bool                 `json:"dry_run,omitempty" doc:"Change no file"`
}

// MergeAction is what a merge does with a file.
type MergeAction string

const (
	MergeAdded    MergeAction = "added"
	MergeModified MergeAction = "modified"
	MergeDeleted  MergeAction = "deleted"
	MergeMerged   MergeAction = "merged" // line by line
)

// MergeResult is the result of a merge.
type MergeResult struct {
	Base       string          `json:"base" doc:"Snapshot that both come from"`
	Applied    bool            `json:"applied" doc:"The files were changed; false for a dry run, or if a conflict is left"`
	Changes    []MergeChange   `json:"changes" doc:"What changes in ours, by path" nullable:"false"`
	Conflicts  []MergeConflict `json:"conflicts" doc:"Paths that both have changed in different ways, resolved ones included" nullable:"false"`
	Unresolved int             `json:"unresolved" doc:"How many conflicts are left"`
	Skipped    []MergeSkipped  `json:"skipped" doc:"Changes in theirs that cannot be merged" nullable:"false"`
	Complete   bool            `json:"complete" doc:"False if a guest has files that could not be looked at"`
}

// MergeChange is a change of a file in ours.
type MergeChange struct {
	Path   string      `json:"path" doc:"Absolute path in the guest"`
	Action MergeAction `json:"action" doc:"added, modified, deleted, or merged: line by line" enum:"added,modified,deleted,merged"`
}

// MergeConflict is a path that both have changed in different ways.
type MergeConflict struct {
	Path     string    `json:"path" doc:"Absolute path in the guest"`
	Kind     string    `json:"kind" doc:"content, add/add, modify/delete, type, mode, owner or file/directory"`
	Text     string    `json:"text" doc:"The conflict as git words it: CONFLICT (kind): path: what is different"`
	Resolved MergeSide `json:"resolved,omitempty" doc:"Version that is taken; absent: it is left" enum:"ours,theirs"`
}

// MergeSkipped is a change that cannot be merged.
type MergeSkipped struct {
	Path string `json:"path,omitempty" doc:"Absolute path in the guest; absent if it is about several"`
	Why  string `json:"why" doc:"The reason"`
}
