package tenancy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// own returns a sandbox visible to the caller.
func (v *lens) own(id string) (sandbox.Info, error) {
	info, err := v.engine.Sandboxes.Get(id)
	own, moving := v.moving(err)
	switch {
	case v.p.Operator():
		return info, err
	case own:
		return sandbox.Info{}, err
	case moving, errors.Is(err, sandbox.ErrNotFound), err == nil && !v.p.Sees(info.Owner):
		return sandbox.Info{}, noSandbox(id)
	}
	return info, err
}

// mine returns an error unless the caller can see the sandbox. The operator passes unchecked, as the engine finds
// the sandbox itself.
func (v *lens) mine(id string) error {
	if v.p.Operator() {
		return nil
	}
	_, err := v.own(id)
	return err
}

// List returns the sandboxes visible to the caller.
func (v sandboxView) List() []sandbox.Info {
	all := v.lens.engine.Sandboxes.List()
	var out []sandbox.Info
	for _, i := range all {
		if v.lens.p.Sees(i.Owner) {
			i.Secrets = v.lens.judged(i.Secrets)
			out = append(out, i)
		}
	}
	return out
}

// Get returns one sandbox.
func (v sandboxView) Get(id string) (sandbox.Info, error) {
	i, err := v.lens.own(id)
	i.Secrets = v.lens.judged(i.Secrets)
	return i, err
}

// judged returns secrets with their validity.
func (v *lens) judged(held []sandbox.HeldSecret) []sandbox.HeldSecret {
	held = slices.Clone(held)
	for i, h := range held {
		held[i].Void = v.t.cfg.Secrets != nil && v.t.cfg.Secrets.Void(h.Secret)
	}
	return held
}

// Fork forks children of a snapshot, within the quotas.
func (v sandboxView) Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error) {
	if !req.OwnLabels {
		if err := sandbox.CheckGivenLabels(req.Labels); err != nil {
			return sandbox.ForkResult{}, err
		}
	}
	req.HostPorts = v.lens.hostPorts()
	if v.lens.p.Operator() {
		return v.lens.engine.Sandboxes.Fork(ctx, req)
	}
	if req.N < 1 || req.N > sandbox.MaxFork { // reject invalid numbers before quotas count them
		return sandbox.ForkResult{}, sandbox.Errorf(sandbox.ErrInvalid, "", "n is %d, want 1 to %d", req.N, sandbox.MaxFork)
	}
	brief, err := v.lens.find(req.Tag)
	if err != nil {
		return sandbox.ForkResult{}, err
	}
	if req.Tap != "" {
		return sandbox.ForkResult{}, v.lens.operatorOnly("a tap of the host")
	}
	if req.Limits.CPUWeight > sandbox.DefaultCPUWeight {
		return sandbox.ForkResult{}, v.lens.operatorOnly(fmt.Sprintf("a CPU weight above %d", sandbox.DefaultCPUWeight))
	}
	if req.Kin = (sandbox.Kin{}); req.GuestFork {
		req.Kin.Key = v.lens.p.KeyID
	}
	if err := v.lens.roomOnDisk(ctx); err != nil {
		return sandbox.ForkResult{}, err
	}
	release, err := v.lens.admit(req.N, req.N*brief.MemoryMiB)
	if err != nil {
		return sandbox.ForkResult{}, err
	}
	defer release()
	req.Tag, req.Owner = brief.Tag, v.lens.p.Tenant
	return v.lens.engine.Sandboxes.Fork(ctx, req)
}

// Branch creates a snapshot of a sandbox, and forks children of it.
func (v sandboxView) Branch(ctx context.Context, req sandbox.BranchRequest) (sandbox.BranchResult, error) {
	if err := sandbox.CheckGivenLabels(req.Labels); err != nil {
		return sandbox.BranchResult{}, err
	}
	req.HostPorts = v.lens.hostPorts()
	if v.lens.p.Operator() {
		if info, err := v.lens.engine.Sandboxes.Get(req.SandboxID); err == nil { // otherwise the engine has the error
			req, _ = v.lens.retained(req, info) // no maximum
		}
		return v.lens.shownBranch(v.lens.engine.Branches.Branch(ctx, req))
	}
	info, err := v.lens.own(req.SandboxID)
	if err == nil {
		req, err = v.lens.retained(req, info)
	}
	if err != nil {
		return sandbox.BranchResult{}, err
	}
	if req.Tag != "" {
		if req.Tag, err = v.lens.newTag(req.Tag); err != nil {
			return sandbox.BranchResult{}, err
		}
	}
	if err := v.lens.roomOnDisk(ctx); err != nil {
		return sandbox.BranchResult{}, err
	}
	n := max(req.N, 0)
	release, err := v.lens.admit(n, n*info.Shape.MemoryMiB)
	if err != nil {
		return sandbox.BranchResult{}, err
	}
	defer release()
	defer v.lens.diskChanged()
	req.Owner = v.lens.p.Tenant
	return v.lens.shownBranch(v.lens.engine.Branches.Branch(ctx, req))
}

func (v *lens) shownBranch(r sandbox.BranchResult, err error) (sandbox.BranchResult, error) {
	if err == nil {
		r.Snapshot = v.shown(r.Snapshot)
	}
	return r, err
}

// Rollback rolls a sandbox back to a snapshot of its ancestry.
func (v sandboxView) Rollback(ctx context.Context, id, tag string) (sandbox.Info, error) {
	if v.lens.p.Operator() {
		return v.lens.engine.Branches.Rollback(ctx, id, tag)
	}
	if err := v.lens.mine(id); err != nil {
		return sandbox.Info{}, err
	}
	brief, err := v.lens.find(tag)
	if err != nil {
		return sandbox.Info{}, err
	}
	info, err := v.lens.engine.Branches.Rollback(ctx, id, brief.Tag)
	var e *sandbox.Error
	// The error names the ancestry, which may belong to other tenants.
	if errors.As(err, &e) && e.Reason() == sandbox.ReasonNotInAncestry {
		err = sandbox.Detailed(sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNotInAncestry,
			"sandbox %s did not come from snapshot %s", id, brief.Tag), "tags", v.lens.visibleOf(e.Details()["tags"]))
	}
	return info, err
}

// Promote puts a sandbox in the place of one that it descends from. Both have the same owner.
func (v sandboxView) Promote(ctx context.Context, req sandbox.PromoteRequest) (sandbox.Promotion, error) {
	req.HostPorts = v.lens.hostPorts()
	if v.lens.p.Operator() {
		return v.lens.engine.Branches.Promote(ctx, req)
	}
	if err := v.lens.mine(req.Child); err != nil {
		return sandbox.Promotion{}, err
	}
	if req.Place != "" {
		if err := v.lens.mine(req.Place); err != nil {
			return sandbox.Promotion{}, err
		}
	}
	if req.Tag != "" {
		var err error
		if req.Tag, err = v.lens.newTag(req.Tag); err != nil {
			return sandbox.Promotion{}, err
		}
	}
	if err := v.lens.roomOnDisk(ctx); err != nil {
		return sandbox.Promotion{}, err
	}
	defer v.lens.diskChanged()
	req.Owner = v.lens.p.Tenant
	return v.lens.engine.Branches.Promote(ctx, req)
}

// ForkGroup copies all running sandboxes of a private network of the caller, within the quotas.
func (v sandboxView) ForkGroup(
	ctx context.Context, req sandbox.GroupForkRequest,
) (sandbox.GroupForkResult, error) {
	req.HostPorts, req.Owner = v.lens.hostPorts(), v.lens.p.Tenant
	if v.lens.p.Operator() {
		return v.lens.engine.Branches.ForkGroup(ctx, req)
	}
	if err := v.lens.roomOnDisk(ctx); err != nil {
		return sandbox.GroupForkResult{}, err
	}
	defer v.lens.diskChanged()
	req.Admit = v.lens.admit
	return v.lens.engine.Branches.ForkGroup(ctx, req)
}

// visibleOf removes tags from a list that are not visible to the caller.
func (v *lens) visibleOf(tags string) string {
	list := slices.DeleteFunc(strings.Split(tags, ", "), func(tag string) bool {
		_, err := v.find(tag)
		return err != nil
	})
	return strings.Join(list, ", ")
}

// Kill ends a sandbox.
func (v sandboxView) Kill(ctx context.Context, id string) error {
	if err := v.lens.mine(id); err != nil {
		return err
	}
	defer v.lens.diskChanged()
	return v.lens.engine.Sandboxes.Kill(ctx, id)
}

// KillTree ends a sandbox and its tree of forks. All of them have the same owner.
func (v sandboxView) KillTree(ctx context.Context, id string) (ended []string, err error) {
	if err := v.lens.mine(id); err != nil {
		return nil, err
	}
	defer v.lens.diskChanged()
	return v.lens.engine.Sandboxes.KillTree(ctx, id)
}

// Console returns a sandbox's console output.
func (v sandboxView) Console(id string) (io.ReadCloser, error) {
	if err := v.lens.mine(id); err != nil {
		return nil, err
	}
	return v.lens.engine.Sandboxes.Console(id)
}

// FollowConsole follows a sandbox's console output.
func (v sandboxView) FollowConsole(ctx context.Context, id string, lines int, write func([]byte) error) error {
	if err := v.lens.mine(id); err != nil {
		return err
	}
	return v.lens.engine.Sandboxes.FollowConsole(ctx, id, lines, write)
}

// Memory returns a sandbox's memory use.
func (v sandboxView) Memory(id string) (sandbox.MemoryUse, error) {
	if err := v.lens.mine(id); err != nil {
		return sandbox.MemoryUse{}, err
	}
	return v.lens.engine.Sandboxes.Memory(id)
}

// Ping checks that a guest's agent responds.
func (v sandboxView) Ping(ctx context.Context, id string) (sandbox.Pong, error) {
	if err := v.lens.mine(id); err != nil {
		return sandbox.Pong{}, err
	}
	return v.lens.engine.Guests.Ping(ctx, id)
}

// Exec runs a program in a guest.
func (v sandboxView) Exec(ctx context.Context, id string, req sandbox.ExecRequest) (sandbox.ExecResult, error) {
	if err := v.lens.mine(id); err != nil {
		return sandbox.ExecResult{}, err
	}
	return v.lens.engine.Guests.Exec(ctx, id, req)
}

// Eval runs code in a guest's interpreter.
func (v sandboxView) Eval(ctx context.Context, id string, req sandbox.EvalRequest) (sandbox.EvalResult, error) {
	if err := v.lens.mine(id); err != nil {
		return sandbox.EvalResult{}, err
	}
	return v.lens.engine.Guests.Eval(ctx, id, req)
}

// DialAgent connects to a guest's agent.
func (v sandboxView) DialAgent(ctx context.Context, id string) (net.Conn, error) {
	if err := v.lens.mine(id); err != nil {
		return nil, err
	}
	return v.lens.engine.Guests.DialAgent(ctx, id)
}

// DialPort connects to a server in a guest.
func (v sandboxView) DialPort(ctx context.Context, id string, port uint16) (net.Conn, error) {
	if err := v.lens.mine(id); err != nil {
		return nil, err
	}
	return v.lens.engine.Guests.DialPort(ctx, id, port)
}

// Network returns a sandbox's network policy.
func (v sandboxView) Network(id string) (sandbox.Network, error) {
	if err := v.lens.mine(id); err != nil {
		return sandbox.Network{}, err
	}
	return v.lens.engine.Networks.Network(id)
}

// SetNetwork changes a sandbox's network policy.
func (v sandboxView) SetNetwork(ctx context.Context, id string, req sandbox.NetworkRequest) (sandbox.Network, error) {
	if err := v.lens.mine(id); err != nil {
		return sandbox.Network{}, err
	}
	req.HostPorts = v.lens.hostPorts()
	return v.lens.engine.Networks.SetNetwork(ctx, id, req)
}

// Flows returns a sandbox's connections.
func (v sandboxView) Flows(ctx context.Context, id string) ([]sandbox.NetFlow, error) {
	if err := v.lens.mine(id); err != nil {
		return nil, err
	}
	return v.lens.engine.Networks.Flows(ctx, id)
}

// NetworkLog writes a sandbox's refused and allowed connections.
func (v sandboxView) NetworkLog(ctx context.Context, id string, follow bool, write func([]byte) error) error {
	if err := v.lens.mine(id); err != nil {
		return err
	}
	return v.lens.engine.Networks.NetworkLog(ctx, id, follow, write)
}
