package fakeengine

import (
	"context"
	"fmt"
	"time"

	"github.com/forkd/forkd/internal/domain/privatenets"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// ForkGroup copies the running sandboxes of a private network.
func (p promotions) ForkGroup(
	ctx context.Context, req sandbox.GroupForkRequest,
) (r sandbox.GroupForkResult, err error) {
	e := p.e
	if req.N < 1 || req.N > sandbox.MaxGroupCopies {
		return r, fmt.Errorf("n is %d, want 1 to %d: %w", req.N, sandbox.MaxGroupCopies, sandbox.ErrInvalid)
	}
	if e.Networks == nil {
		return r, sandbox.Errorf(sandbox.ErrUnsupported, "", "this engine has no private networks")
	}
	from, err := e.Networks.Get(req.Owner, req.Network)
	if err != nil {
		return r, err
	}
	if req.Prefix == "" {
		req.Prefix = from.Name
	}
	var group []sandbox.Info
	memory := 0
	for _, m := range from.Members {
		if i, err := e.Get(m.Sandbox); err == nil && i.Status == sandbox.StatusRunning {
			group, memory = append(group, i), memory+i.Shape.MemoryMiB
		}
	}
	if len(group) == 0 {
		return r, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNetworkEmpty,
			"fork network %s: it has no running member", from.Name)
	}
	if req.Admit != nil {
		release, err := req.Admit(req.N*len(group), req.N*memory)
		if err != nil {
			return r, err
		}
		defer release()
	}
	r.Pause, r.Total = 2*time.Millisecond, 40*time.Millisecond
	for range req.N {
		c, err := copyGroup(ctx, e, req, group)
		if err != nil {
			return r, err
		}
		r.Copies = append(r.Copies, c)
	}
	return r, nil
}

// copyGroup makes one copy.
func copyGroup(
	ctx context.Context, e *Engine, req sandbox.GroupForkRequest, group []sandbox.Info,
) (c sandbox.GroupCopy, err error) {
	var members []privatenets.Member
	for _, i := range group {
		res, err := e.Fork(ctx, sandbox.ForkRequest{Tag: i.SnapshotTag, N: 1, Owner: i.Owner, Limits: i.Limits,
			Labels: i.Labels})
		if err != nil {
			return c, err
		}
		c.Sandboxes = append(c.Sandboxes, res.Children[0].Info)
		members = append(members, privatenets.Member{Sandbox: res.Children[0].Info.ID, Alias: i.Network.Member.Alias,
			Addr: i.Network.Member.Addr})
	}
	nets, err := e.Networks.Copies(req.Owner, req.Prefix, [][]privatenets.Member{members})
	if err != nil {
		return c, err
	}
	c.Network, c.NetworkID = nets[0].Name, nets[0].ID
	e.mu.Lock()
	for k, m := range members {
		as := &sandbox.Member{Network: c.Network, NetworkID: c.NetworkID, Alias: m.Alias, Addr: m.Addr}
		e.entries[m.Sandbox].info.Network.Member, c.Sandboxes[k].Network.Member = as, as
		e.entries[m.Sandbox].info.BranchedFrom, c.Sandboxes[k].BranchedFrom = group[k].ID, group[k].ID
	}
	e.mu.Unlock()
	return c, e.Networks.Settle(nets, nil)
}
