package mcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/mcp/lease"
)

// lifeOf are the arguments for the lifetime of new sandboxes.
type lifeOf struct {
	TTLSecs float64 `json:"ttl_secs,omitempty" jsonschema:"seconds each may run at most; absent: until the session ends"`
	Keep    bool    `json:"keep,omitempty" jsonschema:"let them outlive this session"`
}

// maxTTL is the largest TTL of the daemon, in seconds.
const maxTTL = 315360000

func (l lifeOf) grant(h *lease.Holder) (lease.Grant, error) {
	if l.TTLSecs != 0 && !(l.TTLSecs >= 1 && l.TTLSecs <= maxTTL) {
		return lease.Grant{}, invalid(fmt.Sprintf("ttl_secs is %g, want 1 to %d", l.TTLSecs, maxTTL), "")
	}
	return h.Grant(time.Duration(l.TTLSecs*float64(time.Second)), l.Keep), nil
}

// networkOf are the arguments for a network policy.
type networkOf struct {
	Network string   `json:"network,omitempty" jsonschema:"none, or public for all of the public internet; absent: as the snapshot says, or none"`
	Allow   []string `json:"allow,omitempty" jsonschema:"destinations to allow: host[:port[-port]][/tcp|udp], such as pypi.org:443, *.example.com or 198.51.100.0/24"`
	Deny    []string `json:"deny,omitempty" jsonschema:"destinations to deny, in the same form; allow beats deny"`
}

// policy returns the policy, or nil if no argument is given.
func (n networkOf) policy() (*api.NetworkPolicy, error) {
	p := &api.NetworkPolicy{Allow: n.Allow, Deny: n.Deny}
	switch {
	case n.Network == string(api.NetPublic):
		p.Default = "public"
	case n.Network != "" && n.Network != string(api.NetNone):
		return nil, invalid(fmt.Sprintf("network is %q, want none or public", n.Network), "name destinations in allow")
	case n.Network == "" && len(n.Allow)+len(n.Deny) == 0:
		return nil, nil
	}
	return p, nil
}

type spawn struct {
	SnapshotTag    string            `json:"snapshot_tag" jsonschema:"snapshot to fork, as list_snapshots returns it"`
	N              int               `json:"n,omitempty" jsonschema:"number of sandboxes, 1 if absent"`
	MemoryLimitMiB *int              `json:"memory_limit_mib,omitempty" jsonschema:"limit of the host memory of each"`
	Env            map[string]string `json:"env,omitempty" jsonschema:"added to the environment of every program"`
	Labels         map[string]string `json:"labels,omitempty" jsonschema:"labels of each, to find them with list_sandboxes"`
	networkOf
	lifeOf

	PerChildNetns bool `json:"per_child_netns,omitempty" jsonschema:"accepted and not needed"`
	LiveFork      bool `json:"live_fork,omitempty" jsonschema:"accepted and not needed"`
	Prewarm       bool `json:"prewarm,omitempty" jsonschema:"accepted and not needed"`
}

// failedChild is a child that could not be made.
type failedChild struct {
	Index int    `json:"index"`
	Error string `json:"error"`
	Code  string `json:"code"`
}

type spawned struct {
	Sandboxes []sandboxInfo `json:"sandboxes"`
	Failed    []failedChild `json:"failed,omitempty" jsonschema:"children that could not be made"`
}

type branch struct {
	bySandbox
	Tag         string `json:"tag,omitempty" jsonschema:"name of the snapshot: 1 to 64 letters, digits, - or _; absent: one is made"`
	N           int    `json:"n,omitempty" jsonschema:"number of sandboxes to fork from the snapshot at once"`
	Mode        string `json:"mode,omitempty" jsonschema:"live (if absent): copy while the sandbox runs; diff: pause it while the difference is copied; full: like live, and depend on no other snapshot"`
	Wait        *bool  `json:"wait,omitempty" jsonschema:"false: answer before the snapshot is written; not with n"`
	Diff        bool   `json:"diff,omitempty" jsonschema:"older way to say mode diff"`
	MeasureDiff bool   `json:"measure_diff,omitempty" jsonschema:"accepted and not needed"`
	lifeOf
}

type branched struct {
	Snapshot  snapshotInfo  `json:"snapshot"`
	Sandboxes []sandboxInfo `json:"sandboxes,omitempty" jsonschema:"children that continue from the moment of the branch"`
	Failed    []failedChild `json:"failed,omitempty" jsonschema:"children that could not be made"`
	Note      string        `json:"note,omitempty"`
}

// addForkTools adds the tools that make sandboxes.
func addForkTools(r *registry) {
	add(r, tool{name: "spawn_sandboxes", title: "Spawn sandboxes", about: "Fork n sandboxes from a snapshot. Each is a " +
		"virtual machine of its own that continues from the snapshot's warm state, within milliseconds. They end with " +
		"this session unless keep is set. They have no network unless network or allow asks for it.", effect: adds}, doSpawn)
	add(r, tool{name: "branch_sandbox", title: "Branch a sandbox", about: "Save a running sandbox, with its memory, " +
		"processes and disk, as a new snapshot; it keeps running. With n, also fork n sandboxes that continue from the " +
		"same moment. Use it before a risky step (rollback_sandbox goes back), or to try several ways at once. The " +
		"snapshot stays on disk until delete_snapshot.", effect: adds}, doBranch)
}

func doSpawn(ctx context.Context, c call, in spawn) (spawned, error) {
	policy, err := in.policy()
	if err != nil {
		return spawned{}, err
	}
	if in.N == 0 {
		in.N = 1
	}
	req := api.CreateSandboxesRequest{SnapshotTag: in.SnapshotTag, MemoryLimitMiB: in.MemoryLimitMiB, Env: in.Env,
		Network: policy, Labels: in.Labels}
	return c.fork(ctx, req, in.N, in.lifeOf)
}

// fork forks n children with a lease. If no child was made, it returns the error of the first.
func (c call) fork(ctx context.Context, req api.CreateSandboxesRequest, n int, life lifeOf) (spawned, error) {
	if n < 1 || n > api.MaxFork {
		return spawned{}, invalid(fmt.Sprintf("n is %d, want 1 to %d", n, api.MaxFork), "")
	}
	grant, err := life.grant(c.lease)
	if err != nil {
		return spawned{}, err
	}
	done, err := c.lease.Reserve(ctx, n)
	if err != nil {
		return spawned{}, err
	}
	defer done()
	req.N, req.SandboxLife = &n, api.SandboxLife{TTLSecs: grant.TTL.Seconds()}
	if grant.TTL > 0 {
		req.AtEnd = api.AtEndKill
	}
	var made []api.SandboxInfo
	failures := []failedChild{}
	_, err = c.client.ForkEach(ctx, req, func(sb api.SandboxInfo) {
		if sb.Error != "" {
			failures = append(failures, failedChild{sb.Index, sb.Error, string(sb.Code)})
		} else if c.lease.Add(sb.ID, grant) {
			made = append(made, sb)
		} else {
			err = errors.Join(err, leases{c.daemon}.Kill(context.WithoutCancel(ctx), sb.ID))
		}
		c.tell(float64(len(made)+len(failures)), float64(n), fmt.Sprintf("%d of %d sandboxes run", len(made), n))
	})
	if err == nil && len(made) == 0 && len(failures) > 0 {
		err = childError(failures[0], n)
	}
	if err != nil {
		c.drop(ctx, made)
		return spawned{}, err
	}
	return spawned{c.infos(made), failures}, nil
}

// childError returns the error of a fork without children.
func childError(f failedChild, n int) error {
	return &client.Error{Code: api.Code(f.Code),
		Message: fmt.Sprintf("none of %d sandboxes could be made: %s", n, f.Error)}
}

// drop ends sandboxes of a fork that failed or was cancelled, because its caller does not learn
// their IDs.
func (c call) drop(ctx context.Context, made []api.SandboxInfo) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	for _, sb := range made {
		if err := (leases{c.daemon}).Kill(ctx, sb.ID); err == nil {
			c.lease.Forget(sb.ID)
		}
	}
}

func doBranch(ctx context.Context, c call, in branch) (branched, error) {
	switch {
	case in.N < 0 || in.N > api.MaxFork:
		return branched{}, invalid(fmt.Sprintf("n is %d, want 0 to %d", in.N, api.MaxFork), "")
	case in.N > 0 && in.Wait != nil && !*in.Wait:
		return branched{}, invalid("wait is false, and n asks for children of the snapshot", "leave out one of them")
	}
	req := api.BranchRequest{Tag: in.Tag, Mode: api.BranchMode(in.Mode), Wait: in.Wait}
	if in.Diff {
		req.Diff = &in.Diff
	}
	c.tell(0, float64(in.N+1), "branching "+in.SandboxID)
	res, err := c.client.Branch(ctx, in.SandboxID, req)
	if err != nil {
		return branched{}, err
	}
	c.noteMade(res.Tag)
	out := branched{Snapshot: c.snapshot(res.SnapshotInfo)}
	if in.N == 0 {
		return out, nil
	}
	// A second request, because a branch gives its children no lease. They continue from the same moment.
	children, err := c.fork(ctx, api.CreateSandboxesRequest{SnapshotTag: res.Tag}, in.N, in.lifeOf)
	if err != nil {
		out.Failed = []failedChild{{0, failureOf(err).Error(), string(codeOf(err))}}
		out.Note = "the snapshot is there, but no sandbox was forked from it; spawn_sandboxes tries again"
		return out, ctx.Err()
	}
	out.Sandboxes, out.Failed = children.Sandboxes, children.Failed
	return out, nil
}
