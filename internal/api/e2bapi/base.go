package e2bapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/api/e2bapi/templates"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// templateSnapshot returns the snapshot of a record's template. It prefers a built template, then a
// snapshot with that tag, then a new snapshot of an image with that name. It sets the template's ID
// in the record.
func (h *Handler) templateSnapshot(c call, rec *records.Record) (sandbox.SnapshotInfo, error) {
	name := rec.Template
	var unbuilt error
	if h.builder != nil {
		t, b, err := h.opt.Builds.Find(c.who.Tenant, name)
		if err == nil {
			rec.Template, rec.Alias = t.ID, t.Name
			return c.engine.SnapshotInfo(c.ctx, b.Snapshot)
		}
		if t.ID != "" { // the template exists, and its error is more precise
			unbuilt = err
		}
	}
	tag, err := templates.Tag(name)
	if err != nil {
		if unbuilt != nil {
			err = unbuilt
		}
		return sandbox.SnapshotInfo{}, err
	}
	info, err := h.snapshotOf(c.ctx, tag, nil)
	switch {
	case isNotFound(err) && unbuilt != nil:
		err = unbuilt
	case isNotFound(err):
		err = failf(http.StatusNotFound, "template '%s' not found: there is neither a snapshot nor an image %q",
			sandbox.Clip(name), tag)
	}
	return info, err
}

// templateOf is a tag in the namespace of a tenant or the operator.
type templateOf struct{ tenant, tag string }

// snapshotOf returns the snapshot of a template's name. If an image has no snapshot yet, snapshotOf
// makes it. The work continues after the requests for it have ended, and ends with the key that
// began it. A request with another key then begins it again.
func (h *Handler) snapshotOf(ctx context.Context, name string,
	progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	tag, err := templates.Tag(name)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	info, err := h.opt.View(ctx).SnapshotInfo(ctx, tag)
	if err == nil || !isNotFound(err) {
		return info, err
	}
	b := h.startBuild(ctx, tag, progress)
	select {
	case <-b.done:
	case <-ctx.Done():
		return sandbox.SnapshotInfo{}, context.Cause(ctx)
	}
	if errors.Is(b.err, principal.ErrKeyEnded) && ctx.Err() == nil {
		return h.snapshotOf(ctx, name, progress)
	}
	if isNotFound(b.err) {
		return sandbox.SnapshotInfo{}, sandbox.Errorf(sandbox.ErrNotFound, "",
			"template '%s' not found: there is neither a template, nor a snapshot, nor an image %q (forkd image build)",
			sandbox.Clip(name), tag)
	}
	if b.err != nil {
		return sandbox.SnapshotInfo{}, b.err
	}
	return h.opt.View(ctx).SnapshotInfo(ctx, tag)
}

// baseBuild is the creation of an image's snapshot.
type baseBuild struct {
	done chan struct{}
	err  error
	// followers receive progress. The Handler's buildMu guards them.
	followers []func(sandbox.Step)
}

// startBuild makes a snapshot of the image of that name, once for all concurrent requests of a
// tenant.
func (h *Handler) startBuild(ctx context.Context, tag string, progress func(sandbox.Step)) *baseBuild {
	h.buildMu.Lock()
	defer h.buildMu.Unlock()
	of := templateOf{principal.From(ctx).Tenant, tag}
	b := h.building[of]
	if b != nil {
		if progress != nil {
			b.followers = append(b.followers, progress)
		}
		return b
	}
	b = &baseBuild{done: make(chan struct{})}
	if progress != nil {
		b.followers = append(b.followers, progress)
	}
	h.building[of] = b
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	work = principal.Bind(ctx, work)
	go func() {
		defer end()
		_, err := h.opt.View(ctx).CreateSnapshot(work, sandbox.CreateRequest{Tag: tag, Image: tag},
			func(s sandbox.Step) { h.tellFollowers(b, s) })
		switch {
		case errors.Is(err, sandbox.ErrConflict):
			err = nil // another request has made it meanwhile
		case err != nil && principal.KeyEnded(work):
			err = principal.ErrKeyEnded
		}
		b.err = err
		h.buildMu.Lock()
		delete(h.building, of)
		h.buildMu.Unlock()
		close(b.done)
	}()
	return b
}

func (h *Handler) tellFollowers(b *baseBuild, s sandbox.Step) {
	h.buildMu.Lock()
	all := append([]func(sandbox.Step){}, b.followers...)
	h.buildMu.Unlock()
	for _, tell := range all {
		tell(s)
	}
}
