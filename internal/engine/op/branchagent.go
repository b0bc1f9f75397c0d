package op

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// agentAnswer limits the time for an agent to describe itself before a branch.
const agentAnswer = 2 * time.Second

// askAgent returns the description of the sandbox's agent. Usually that is its snapshot's. An agent that was
// replaced describes itself; without an answer it counts as the old one, which can do less.
func (w *branchOp) askAgent(ctx context.Context) snapshot.Agent {
	old := w.src.Files.Manifest.Agent
	if !w.b.Info().AgentRenewed || w.m.Agent == nil {
		return old
	}
	said, err := describeItself(ctx, w.m.Agent)
	if err != nil {
		w.e.cfg.Logger.Warn("a branch counts its agent as the old one", "sandbox", w.req.SandboxID, "err", err)
		return old
	}
	return said
}

// describeItself returns the description of an agent by itself.
func describeItself(ctx context.Context, a *agentclient.Client) (snapshot.Agent, error) {
	ctx, cancel := context.WithTimeout(ctx, agentAnswer)
	defer cancel()
	pong, err := a.Ping(ctx)
	if err != nil {
		return snapshot.Agent{}, err
	}
	return snapshot.Agent{Version: pong.GetVersion(), Capabilities: pong.GetCapabilities()}.Bounded(), nil
}
