package op

import (
	"context"
	"os"

	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// keepWorkingSets records the working sets of the snapshot's children if requested. It takes the
// sets it did not record from the parent: most of the pages touched first are the same.
func (w *branchOp) keepWorkingSets(ctx context.Context, m *snapshot.Manifest) error {
	if w.booted() {
		return nil
	}
	if w.record && !w.e.cfg.NoWorkingSet {
		src, err := w.draftSource(m)
		if err != nil {
			return err
		}
		r := recorder{e: w.e, draft: w.draft, owner: w.req.Owner, src: src, shape: m.Shape, languages: m.Languages,
			firstUse: w.e.firstUse(ctx, m.Image)}
		if err := r.record(ctx); err != nil {
			return err
		}
	}
	for name, set := range map[string]*os.File{
		snapshot.WorkingSetFile: w.src.WorkingSet, snapshot.EvalSetFile: w.src.EvalSet,
		snapshot.ExecSetFile: w.src.ExecSet, snapshot.VolumeSetFile: w.src.VolumeSet,
	} {
		if set == nil || w.draft.Opened(name) != nil {
			continue
		}
		if err := w.draft.Adopt(ctx, name, set); err != nil {
			return err
		}
	}
	return nil
}

// firstUse returns the first-use command of an image. It returns an empty string if the image has
// changed since.
func (o *Ops) firstUse(ctx context.Context, of *snapshot.Image) string {
	if of == nil {
		return ""
	}
	img, err := o.cfg.Images.Image(ctx, of.Name)
	if err != nil || img.Digest != of.Digest {
		return ""
	}
	return img.FirstUse
}

// draftSource returns the files of the future snapshot.
func (w *branchOp) draftSource(m *snapshot.Manifest) (*launch.Source, error) {
	memory, err := w.openChain(m.Memory)
	if err != nil {
		return nil, err
	}
	r := vmm.RestoreConfig{
		State: w.draft.Opened(snapshot.StateFile), Memory: launch.MemoryExtents(memory.Image), Watch: true,
	}
	for _, d := range m.Disks {
		if d.ReadOnly {
			r.Disks = append(r.Disks, vmm.Disk{File: w.draft.Opened(d.File), ReadOnly: true})
			continue
		}
		chain, err := w.openChain(d.Chain)
		if err != nil {
			return nil, err
		}
		r.Disks = append(r.Disks, launch.LayeredDisk(chain.Image, d.Bytes))
	}
	return launch.NewDraftSource(w.req.Tag, m.Agent, r), nil
}

// openChain opens layers until the branch ends.
func (w *branchOp) openChain(of snapshot.Chain) (*store.Chain, error) {
	c, err := w.draft.Layers().Chain(of.Layers...)
	if err == nil {
		w.undo.Push(func() { c.Close() })
	}
	return c, err
}
