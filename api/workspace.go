package api

// CreateWorkspaceRequest is the body of POST /v1/workspaces, in the original's form.
type CreateWorkspaceRequest struct {
	Name           string `json:"name" doc:"Name of the workspace" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 letters, digits, - or _"`
	SnapshotTag    string `json:"snapshot_tag" doc:"Snapshot to fork its sandbox from" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 letters, digits, - or _"`
	PerChildNetns  bool   `json:"per_child_netns,omitempty" doc:"Accepted and not needed: every sandbox is alone on its network"`
	MemoryLimitMiB *int   `json:"memory_limit_mib,omitempty" doc:"Limit of the sandbox's host memory; absent or 0: no limit" minimum:"0"`
}

// SuspendWorkspaceRequest is the body of POST /v1/workspaces/{workspace}/suspend. The body may be
// absent.
type SuspendWorkspaceRequest struct {
	Diff bool `json:"diff,omitempty" doc:"Ignored: only differences from the parent are written"`
}

// WorkspaceStatus is the state of a workspace.
type WorkspaceStatus string

const (
	WorkspaceRunning   WorkspaceStatus = "running"
	WorkspaceSuspended WorkspaceStatus = "suspended"
	WorkspaceStale     WorkspaceStatus = "stale"
)

// WorkspaceInfo describes a workspace: a sandbox under a name.
type WorkspaceInfo struct {
	// Original.
	ID                string          `json:"id" doc:"ws- and a part of its first sandbox's id"`
	Name              string          `json:"name" doc:"Name of the workspace; a tenant's begins with the tenant's own and a dash"`
	SourceSnapshotTag string          `json:"source_snapshot_tag" doc:"Snapshot it was made from"`
	CurrentStateTag   string          `json:"current_state_tag,omitempty" doc:"Snapshot of its last suspend; absent if it never was suspended"`
	Status            WorkspaceStatus `json:"status" doc:"running; suspended: its sandbox is paused; or stale: its sandbox has ended, and a resume makes another" enum:"running,suspended,stale"`
	LiveSandboxID     string          `json:"live_sandbox_id,omitempty" doc:"Its sandbox, while it runs"`
	CreatedAtUnix     int64           `json:"created_at_unix" doc:"When it was made, in seconds since 1970"`
	LastActiveUnix    int64           `json:"last_active_unix" doc:"When it was made, suspended or resumed last"`

	// Ours.
	Owner string `json:"owner,omitempty" doc:"Owning tenant; absent: the operator"`
}
