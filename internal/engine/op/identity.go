package op

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/leaf/failpoint"
)

// identify gives a restored child its own identity and then lists it. A child that cannot be made
// unique is ended.
func (f *forkOp) identify(ctx context.Context, b *child) {
	if b.err != nil {
		return
	}
	defer b.release()
	begin := f.e.cfg.Now()
	b.err = f.settle(ctx, b)
	now := f.e.cfg.Now()
	f.e.cfg.Observer.Observe(sandbox.OpIdentity, now.Sub(begin), b.err)
	if b.err == nil {
		return
	}
	if vmproc.EndedWith(b.m.VM, b.err) {
		b.err = b.m.EndError()
		f.e.sandboxes.LogFailure(sandbox.Info{ID: f.childID(b.index), Owner: f.req.Owner,
			SnapshotTag: f.req.Tag, CreatedAt: f.start},
			b.m.EndReason(), b.m.Dir)
	}
	b.err = fmt.Errorf("identity of child %d: %w", b.index, b.err)
	b.m.Discard()
}

func (f *forkOp) settle(ctx context.Context, b *child) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	id := f.childID(b.index)
	who, err := f.e.launcher.NewIdentity(id, b.index, f.req.Tag, f.req.Env)
	if err != nil {
		return err
	}
	who.ForkToken = f.req.Kin.Token
	traffic, err := f.trafficToken()
	if err != nil {
		return err
	}
	who.Secrets, who.Services = f.values, f.req.Services
	err = f.introduce(ctx, b, who)
	who.Secrets, b.who.Secrets = nil, nil // no list keeps values
	who.Services, b.who.Services = nil, nil
	if err != nil {
		return err
	}
	f.e.wires.Attach(ctx, b.wire, b.m.Proc, b.m.Lent)
	failpoint.Here(failpoint.ForkConfirmed)
	now := f.e.cfg.Now()
	b.ready = now.Sub(f.start)
	b.info = sandbox.Info{
		ID: id, SnapshotTag: f.req.Tag, SnapshotHash: f.src.Hash(), Index: b.index, Fork: f.childID(1), Owner: f.req.Owner,
		Status: sandbox.StatusRunning,
		PID:    b.m.Proc.PID(), CreatedAt: now,
		Shape: b.m.Shape, Hostname: id, Kin: f.req.Kin, BranchedFrom: f.branchedFrom(), Network: f.networkOf(b),
		Secrets:     f.secrets,
		PublicPorts: !f.private(), TrafficToken: traffic, Labels: f.req.Labels,
		Limits: f.req.Limits, DiskBytes: diskBytes(f.src.Files.Manifest), Life: f.req.Life, Volumes: f.volumesOf(),
		AgentRenewed: b.renewed, Agent: agentOf(f, b),
		Armed: b.armed, Resumed: b.resumed, Ready: b.ready,
	}
	undo, err := f.pinVolumes(id, b.m.VM)
	if err != nil {
		return err
	}
	if err = f.e.sandboxes.Add(who, b.info, b.m.VM); err != nil {
		undo()
	}
	b.listed = err == nil
	b.trace.mark("journal")
	return err
}

// branchedFrom returns the sandbox whose state the children have. It is empty if that sandbox belongs to another tenant,
// who published the snapshot.
func (f *forkOp) branchedFrom() string {
	m := f.src.Files.Manifest
	if m.Branch == nil || m.Owner != f.req.Owner {
		return ""
	}
	return m.Branch.Sandbox
}

// introduce sends a restored guest its identity, and waits until it has confirmed.
func (f *forkOp) introduce(ctx context.Context, b *child, who sandbox.Identity) (err error) {
	if err := f.renewAgent(ctx, b); err != nil {
		return err
	}
	if b.m.Agent == nil { // of a VM that has booted, or whose agent refused to be replaced
		b.m.Agent = b.m.NewAgent()
	}
	b.who = who
	b.answer, err = f.e.launcher.Identify(ctx, f.src, b.m, who)
	b.trace.mark("identity")
	return err
}

// private reports whether requests to the children's ports must show a token.
func (f *forkOp) private() bool {
	if f.req.PrivatePorts != nil {
		return *f.req.PrivatePorts
	}
	return !f.src.Files.Manifest.PublicPorts
}

// trafficToken returns the token of one child's ports; empty if they are public.
func (f *forkOp) trafficToken() (string, error) {
	if !f.private() {
		return "", nil
	}
	b, err := f.e.random(trafficTokenBytes)
	return hex.EncodeToString(b), err
}

// trafficTokenBytes is the size of a token before it is written in hex.
const trafficTokenBytes = 32
