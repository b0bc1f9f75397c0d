package mcp

import (
	"context"
	"maps"
	"slices"

	"github.com/forkd/forkd/api"
)

func (s *Server) addTools(r *registry) {
	addSnapshotTools(r)
	addForkTools(r)
	addSandboxTools(r)
	addRunTools(r)
	addFileTools(r)
	addNetworkTools(r)
	addTimelineTools(r)
}

// none is the input of a tool without arguments.
type none struct{}

// bySandbox is the input of a tool with a sandbox only.
type bySandbox struct {
	SandboxID string `json:"sandbox_id" jsonschema:"ID of the sandbox, as spawn_sandboxes and list_sandboxes return it"`
}

// maxListed limits the entries of a list in an answer.
const maxListed = 200

// cut returns the first entries of a list, and the number of the others.
func cut[T any](all []T) ([]T, int) {
	if all == nil {
		all = []T{} // not null, which the schema does not allow
	}
	if len(all) <= maxListed {
		return all, 0
	}
	return all[:maxListed], len(all) - maxListed
}

// sandboxInfo is a sandbox in an answer: the parts of api.SandboxInfo that a model needs.
type sandboxInfo struct {
	ID             string `json:"id" jsonschema:"ID of the sandbox"`
	SnapshotTag    string `json:"snapshot_tag" jsonschema:"snapshot it was forked from"`
	Index          int    `json:"index,omitempty" jsonschema:"1 to n within its fork"`
	Status         string `json:"status" jsonschema:"running, paused, pausing, resuming, stalled or failed"`
	Reason         string `json:"reason,omitempty" jsonschema:"why it failed or stalls"`
	Warning        string `json:"warning,omitempty"`
	OfSession      bool   `json:"of_session" jsonschema:"this session made it"`
	EndsWith       bool   `json:"ends_with_session" jsonschema:"it ends with this session; keep_sandbox changes that"`
	CreatedAtUnix  int64  `json:"created_at_unix"`
	DeadlineUnix   *int64 `json:"deadline_unix,omitempty" jsonschema:"when it ends; renewed while the session lives if it ends with the session"`
	MemoryMiB      int    `json:"memory_mib,omitempty" jsonschema:"memory of the guest"`
	VCPUs          int    `json:"vcpus,omitempty"`
	MemoryLimitMiB *int   `json:"memory_limit_mib,omitempty" jsonschema:"limit of its host memory"`
	Network        string `json:"network,omitempty" jsonschema:"none, public, custom or tap"`

	Labels       map[string]string `json:"labels,omitempty"`
	RolledBackTo string            `json:"rolled_back_to,omitempty"`
	PausedIn     string            `json:"paused_in,omitempty" jsonschema:"snapshot it is paused in, or was last"`
	ForkedBy     string            `json:"forked_by,omitempty" jsonschema:"sandbox that forked itself to make it"`
}

func (n *session) info(sb api.SandboxInfo) sandboxInfo {
	mine, kept := n.lease.State(sb.ID)
	out := sandboxInfo{
		ID: sb.ID, SnapshotTag: sb.SnapshotTag, Index: sb.Index, Status: string(sb.Status), Reason: sb.Reason,
		Warning: sb.Warning, OfSession: mine, EndsWith: mine && !kept, CreatedAtUnix: sb.CreatedAtUnix,
		MemoryMiB: sb.MemoryMiB, VCPUs: sb.VCPUs, MemoryLimitMiB: sb.MemoryLimitMiB, RolledBackTo: sb.RolledBackTo,
		PausedIn: sb.PausedIn, ForkedBy: sb.ForkedBy, Labels: sb.Labels,
	}
	if sb.Life != nil {
		out.DeadlineUnix = sb.Life.DeadlineUnix
	}
	if sb.Network != nil {
		out.Network = string(sb.Network.Policy)
	}
	return out
}

func (n *session) infos(all []api.SandboxInfo) []sandboxInfo {
	out := make([]sandboxInfo, 0, len(all))
	for _, sb := range all {
		out = append(out, n.info(sb))
	}
	return out
}

// snapshotInfo is a snapshot in an answer.
type snapshotInfo struct {
	Tag           string   `json:"tag"`
	Status        string   `json:"status" jsonschema:"ready, writing or failed"`
	Image         string   `json:"image,omitempty" jsonschema:"image it was made of"`
	ParentTag     string   `json:"parent_tag,omitempty" jsonschema:"snapshot it is based on"`
	BranchedFrom  string   `json:"branched_from,omitempty" jsonschema:"sandbox it was branched from"`
	CreatedAtUnix int64    `json:"created_at_unix"`
	MemoryMiB     int      `json:"memory_mib,omitempty" jsonschema:"memory of its children"`
	VCPUs         int      `json:"vcpus,omitempty"`
	SizeBytes     int64    `json:"size_bytes,omitempty" jsonschema:"size on disk"`
	Languages     []string `json:"languages,omitempty" jsonschema:"interpreters for eval_code"`
	PauseMS       *float64 `json:"pause_ms,omitempty" jsonschema:"how long the sandbox stood still for the branch"`
	Warning       string   `json:"warning,omitempty"`
	OfSession     bool     `json:"of_session" jsonschema:"this session made it, and delete_snapshot may delete it"`
}

func (n *session) snapshot(s api.SnapshotInfo) snapshotInfo {
	return snapshotInfo{
		Tag: s.Tag, Status: string(s.Status), Image: s.Image, ParentTag: textOf(s.ParentTag), Warning: textOf(s.Warning),
		BranchedFrom: textOf(s.BranchedFrom), CreatedAtUnix: s.CreatedAtUnix, MemoryMiB: s.MemoryMiB, VCPUs: s.VCPUs,
		SizeBytes: s.SizeBytes, Languages: s.Languages, PauseMS: s.PauseMS, OfSession: n.hasMade(s.Tag),
	}
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// listInput selects entries of a list.
type listInput struct {
	Labels map[string]string `json:"labels,omitempty" jsonschema:"list only sandboxes with all of these labels"`
}

func (in listInput) filters() (out []string) {
	for _, k := range slices.Sorted(maps.Keys(in.Labels)) {
		out = append(out, "label="+k+"="+in.Labels[k])
	}
	return out
}

// addSandboxTools adds the tools for single sandboxes.
func addSandboxTools(r *registry) {
	type listed struct {
		Sandboxes []sandboxInfo `json:"sandboxes"`
		More      int           `json:"more,omitempty" jsonschema:"number of sandboxes left out"`
	}
	add(r, tool{name: "list_sandboxes", title: "List sandboxes", about: "List the sandboxes of the daemon that the key " +
		"may see, oldest first. of_session marks those of this session.", effect: reads},
		func(ctx context.Context, c call, in listInput) (listed, error) {
			all, err := c.client.ListSandboxes(ctx, in.filters()...)
			out, more := cut(c.infos(all))
			return listed{out, more}, err
		})
	add(r, tool{name: "get_sandbox", title: "Get a sandbox", about: "Get the state of one sandbox.", effect: reads},
		func(ctx context.Context, c call, in bySandbox) (sandboxInfo, error) {
			sb, err := c.client.Sandbox(ctx, in.SandboxID)
			return c.info(sb), err
		})
	type killed struct {
		ID     string `json:"id"`
		Killed bool   `json:"killed"`
	}
	add(r, tool{name: "kill_sandbox", title: "Kill a sandbox", about: "End a sandbox and delete its memory and disk. " +
		"Snapshots made of it stay. This cannot be undone.", effect: destroys},
		func(ctx context.Context, c call, in bySandbox) (killed, error) {
			err := c.client.Kill(ctx, in.SandboxID)
			if err == nil {
				c.lease.Forget(in.SandboxID)
			}
			return killed{in.SandboxID, err == nil}, err
		})
	type pong struct {
		Pong         bool    `json:"pong"`
		PID          int     `json:"pid" jsonschema:"process of the agent in the guest"`
		NumpyVersion *string `json:"numpy_version,omitempty" jsonschema:"version of numpy in the warm interpreter"`
		UptimeMS     float64 `json:"uptime_ms" jsonschema:"time since the guest's boot"`
	}
	add(r, tool{name: "ping_sandbox", title: "Ping a sandbox", about: "Check that the agent in a sandbox answers.",
		effect: reads},
		func(ctx context.Context, c call, in bySandbox) (pong, error) {
			p, err := c.client.Ping(ctx, in.SandboxID)
			return pong{p.Pong, p.PID, p.NumpyVersion, p.UptimeMS}, err
		})
	addLifeTools(r)
}
