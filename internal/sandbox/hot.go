package sandbox

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/forkd/forkd/internal/snapshot"
	"github.com/forkd/forkd/internal/undo"
	"github.com/forkd/forkd/internal/vmmctl"
)

// rehearse forks one child from the snapshot in the making, brings it as far as
// any child, and keeps what memory it touched on the way in the snapshot: every
// later child will touch the same. A snapshot is as good without that, so only
// the caller's going away is an error.
func (c *creation) rehearse(ctx context.Context) error {
	if c.e.cfg.NoRehearsal {
		return nil
	}
	start := c.e.cfg.Now()
	hot, err := c.draft.File(snapshot.HotFile)
	if err != nil {
		return err
	}
	r, err := c.rehearsal(ctx, hot)
	if err == nil {
		c.e.cfg.Logger.Info("snapshot rehearsed", "tag", c.req.Tag, "took", c.e.cfg.Now().Sub(start),
			"read_pages", r.ReadPages, "written_pages", r.WrittenPages, "runs", r.Runs)
		return nil
	}
	c.draft.Drop(hot)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.e.cfg.Logger.Warn("rehearse a child; the snapshot's children will be ready somewhat later", "tag", c.req.Tag, "err", err)
	return nil
}

func (c *creation) rehearsal(ctx context.Context, hot *os.File) (r vmmctl.HotResult, err error) {
	limit := c.e.cfg.RestoreTimeout + c.e.cfg.IdentityTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, problem(ErrTimeout, "", "the rehearsal did not end within %s", limit))
	defer cancel()
	var u undo.Stack
	defer u.Run()
	release, err := c.e.memory.admit(c.e.cfg.ChildMemory)
	if err != nil {
		return r, err
	}
	u.Push(release)
	f := c.forkDraft()
	m, err := c.e.spawn(ctx, c.src.shape, nil)
	if err != nil {
		return r, err
	}
	u.Push(func() { c.e.discard(m) })
	if err := f.load(ctx, m); err != nil {
		return r, fmt.Errorf("restore: %w", err)
	}
	if err := f.act(ctx, m); err != nil {
		return r, err
	}
	if err := m.proc.Pause(ctx); err != nil {
		return r, err
	}
	return m.proc.WriteHot(ctx, hot)
}

// forkDraft is a fork from the files that the snapshot will have.
func (c *creation) forkDraft() *forking {
	f := &forking{e: c.e, req: ForkRequest{Tag: c.req.Tag, N: 1}, start: c.e.cfg.Now(), src: &forkSource{}}
	f.src.config = vmmctl.RestoreConfig{
		State:  c.draft.Opened(snapshot.StateFile),
		Memory: memorySegments(c.opened[0].Image),
		Disks:  []vmmctl.Disk{{File: c.draft.Opened(snapshot.DiskFile(0)), ReadOnly: true}},
		Watch:  true,
	}
	if c.src.image.Upper != "" {
		f.src.config.Disks = append(f.src.config.Disks, layeredDisk(c.opened[1].Image, c.src.upper))
	}
	return f
}

// act is a child's way to ready: its identity and a sign of life.
func (f *forking) act(ctx context.Context, m *machine) error {
	who, err := f.e.newPersona("rehearsal", 1, f.req.Tag, nil)
	if err != nil {
		return err
	}
	m.agent = newAgent(m)
	defer m.agent.Close()
	if _, err := f.e.sendIdentity(ctx, m, who); err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	if _, err := m.agent.Ping(ctx); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	return nil
}

// populateTimeout bounds what a child loses if its VMM is stuck.
const populateTimeout = 20 * time.Second

// populate maps at once what the child is going to touch. It is help, not a
// condition: without it the child takes a fault for each page.
func (f *forking) populate(ctx context.Context, b *birth) {
	if f.src.hot == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, populateTimeout)
	defer cancel()
	r, err := b.m.proc.Populate(ctx, f.src.hot)
	if err != nil {
		f.e.cfg.Logger.Warn("populate a child's memory", "tag", f.req.Tag, "index", b.index, "err", err)
		return
	}
	f.e.cfg.Logger.Debug("populated", "index", b.index, "pages", r.ReadPages+r.WrittenPages,
		"map", time.Duration(r.MapNanos), "kvm", time.Duration(r.KVMNanos))
}
