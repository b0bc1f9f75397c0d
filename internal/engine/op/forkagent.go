package op

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// A snapshot holds the agent of its time. If the request needs more than that agent can, and the
// agent can be replaced, each child gets the daemon's agent before its identity.

// agentNeed is a capability that a request needs.
type agentNeed struct {
	capability, name string
}

// needsOfAgent returns the capabilities that the agent lacks for the request.
func (f *forkOp) needsOfAgent() (missing []agentNeed) {
	for _, n := range []struct {
		asked bool
		agentNeed
	}{
		{len(f.req.Services) > 0, agentNeed{agentproto.CanServices, "services"}},
		{slices.ContainsFunc(f.req.Services, func(s servicespec.Spec) bool { return s.Liveness.On() }),
			agentNeed{agentproto.CanLiveness, "liveness of services"}},
		{slices.ContainsFunc(f.req.Services, func(s servicespec.Spec) bool { return s.StopSignal != "" }),
			agentNeed{agentproto.CanStopSignal, "stop signals of services"}},
		{f.req.Identity, agentNeed{agentproto.CanIdentityTokens, "identity tokens"}},
		{len(f.req.Volumes) > 0, agentNeed{agentproto.CanVolumes, "volumes"}},
	} {
		if n.asked && !f.src.Agent.Can(n.capability) {
			missing = append(missing, n.agentNeed)
		}
	}
	return missing
}

// checkAgent refuses requests that the snapshot's agent does not support, or opens the daemon's
// agent for the children. The caller closes f.agent.
func (f *forkOp) checkAgent() (err error) {
	missing := f.needsOfAgent()
	wanted := f.req.RenewAgent && agentproto.Outdated(f.src.Agent.Capabilities)
	renewable := f.src.Agent.Can(agentproto.CanUpdate) && f.e.cfg.AgentFile.Path != ""
	switch {
	case len(missing) == 0 && !(wanted && renewable):
		return nil
	case !renewable:
		return f.refuseAgent(missing[0])
	}
	if f.agent, err = f.e.cfg.AgentFile.Open(); err != nil {
		return fmt.Errorf("fork %s: %w", f.req.Tag, err)
	}
	for _, n := range missing {
		f.demand = append(f.demand, n.capability)
	}
	return nil
}

func (f *forkOp) refuseAgent(n agentNeed) error {
	if n.capability == agentproto.CanVolumes { // fitVolumes has its own reason
		return nil
	}
	return sandbox.Errorf(sandbox.ErrUnsupported, sandbox.ReasonAgentOld, "fork %s: its agent is older than this daemon "+
		"and has no %s: make the snapshot again from its image", f.req.Tag, n.name)
}

// agentOf describes the agent of a child.
func agentOf(f *forkOp, b *child) *sandbox.Agent {
	if b.renewed {
		return f.e.cfg.AgentFile.Describe(b.agent)
	}
	return f.e.cfg.AgentFile.Describe(f.src.Agent)
}

// renewAgent gives a child the daemon's agent, if it needs that. A child that only would profit from
// it goes on with its old agent if that refuses.
func (f *forkOp) renewAgent(ctx context.Context, b *child) error {
	if f.agent == nil {
		return nil
	}
	said, err := f.e.launcher.RenewAgent(ctx, f.src, b.m, f.agent, f.demand)
	b.trace.mark("agent")
	var refused *launch.RefusedError
	switch {
	case err == nil:
		b.renewed, b.agent = true, said
		return nil
	case errors.As(err, &refused) && len(f.demand) == 0:
		f.e.cfg.Logger.Warn("a snapshot keeps its old agent", "tag", f.req.Tag, "err", err)
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	needs := "a newer agent"
	if len(f.demand) > 0 {
		needs = strings.Join(f.demand, " and ")
	}
	return sandbox.Errorf(sandbox.ErrUnsupported, sandbox.ReasonAgentOld, "replace its agent for %s: %w", needs, err)
}
