package build

import (
	"context"
	"errors"

	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// leftover is an ended build with a sandbox.
type leftover struct {
	Build
	template, owner string
}

// settle marks the unfinished builds of another process as failed, and lists their leftovers.
func (b *Builder) settle() {
	s := b.cfg.Store
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, t := range s.templates.all {
		t, changed := t.clone(), false
		for i := range t.Builds {
			made := &t.Builds[i]
			if made.Sandbox != "" {
				b.left = append(b.left, leftover{*made, t.ID, t.Owner})
			}
			if made.Status != Building && made.Status != Waiting {
				continue
			}
			why := errLost
			if !made.Begun {
				why = errNotBegun
			}
			made.Status, made.Finished, made.Reason, changed = Failed, b.cfg.Now(), &Reason{Message: why.Error()}, true
		}
		if !changed {
			continue
		}
		if err := s.templates.put(id, t); err != nil {
			b.cfg.Log.Error("note that a build ended with its daemon", "template", t.Name, "error", err)
		}
	}
	for _, l := range s.outdated.all {
		if l.Pending {
			b.stray = append(b.stray, l)
		}
	}
}

// clear ends the sandboxes of another process's builds, and deletes the snapshots they were about
// to make.
func (b *Builder) clear(ctx context.Context) {
	for _, made := range b.left {
		err := b.cfg.Engine.Kill(b.as(ctx, made.owner), made.Sandbox)
		if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
			b.cfg.Log.Warn("end the sandbox that a build left", "sandbox", made.Sandbox, "error", err)
			continue
		}
		_ = b.cfg.Store.changeBuild(made.template, made.ID, func(_ *Template, x *Build) { x.Sandbox = "" })
	}
	for _, l := range b.stray {
		b.forgetIntended(ctx, l)
	}
	b.left, b.stray = nil, nil
}

// forgetIntended deletes an intended snapshot if it exists, and its record.
func (b *Builder) forgetIntended(ctx context.Context, l layer) {
	err := b.cfg.Engine.DeleteSnapshot(b.as(ctx, l.Owner), l.Tag, sandbox.DeleteOptions{})
	if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		b.cfg.Log.Warn("delete a snapshot that no build came to note", "snapshot", l.Tag, "error", err)
		return
	}
	if err := b.cfg.Store.drop(l.Tag); err != nil {
		b.cfg.Log.Warn("forget a layer", "snapshot", l.Tag, "error", err)
	}
}

// as returns a context of an owner, so that tags are resolved in the owner's namespace.
func (b *Builder) as(ctx context.Context, owner string) context.Context {
	if principal.From(ctx).Tenant == owner {
		return ctx
	}
	return principal.With(ctx, principal.Principal{Tenant: owner})
}
