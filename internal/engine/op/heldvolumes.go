package op

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/store/volume"
)

// A sandbox with a volume of its own is branched, paused, resumed and rolled back like its other disks: a
// capture freezes the volume's top file and continues in another one, and a new VM gets the volume's state of
// the capture. The volume's record follows with one write, after the layers that it names are pinned.

// settleVolumes records the present files of a VM's volumes.
func settleVolumes(o *Ops, disks []vmproc.Disk) (errs error) {
	for _, d := range disks {
		if d.Volume != "" {
			errs = errors.Join(errs, o.volumes.Settle(d.Volume, stackOf(d)))
		}
	}
	return errs
}

func stackOf(d vmproc.Disk) volume.Stack {
	return volume.Stack{Backing: d.Backing, Files: append(slices.Clone(d.Frozen), d.Overlay)}
}

// newOverlay makes another overlay file for a disk of the branched sandbox.
func newOverlay(w *branchOp, d vmproc.Disk) (*os.File, error) {
	if d.Volume != "" {
		return w.e.volumes.NewTop(d.Volume, nil)
	}
	return w.m.NewOverlay(d.Index)
}

// describeVolumes adds the volumes to the manifest. written are their layers.
func describeVolumes(w *branchOp, m *snapshot.Manifest, written []diskStack) {
	from := w.src.Files.Manifest.Volumes()
	for i, v := range w.b.Info().Volumes {
		d := snapshot.Disk{Bytes: v.Bytes, Chain: written[i].Chain(),
			Volume: &snapshot.Volume{ID: v.ID, Name: v.Name, Path: v.Path, ReadOnly: v.ReadOnly}}
		if i < len(from) {
			d.Own = d.OwnSince(from[i].Chain)
		}
		m.Disks = append(m.Disks, d)
	}
}

// ownTops makes the new VM of a sandbox write to the sandbox's own volumes. It refuses a snapshot without
// them, or with others.
func (n *newVM) ownTops() error {
	m := n.f.src.Files.Manifest
	if err := sameVolumes(n.was, m); err != nil {
		return err
	}
	tops := map[int]vmproc.Top{}
	for i, v := range n.was.Volumes {
		if v.Mode != sandbox.VolumePrivate {
			continue
		}
		at := m.Shape.Disks + i
		backing := m.Disks[at].Layers
		tops[at] = vmproc.Top{Volume: v.ID, Make: func() (*os.File, error) { return n.e.volumes.NewTop(v.ID, backing) }}
	}
	if len(tops) > 0 {
		own := *n.f.src
		own.Tops = tops
		n.f.src = &own
	}
	return nil
}

func sameVolumes(i sandbox.Info, m *snapshot.Manifest) error {
	has := m.Volumes()
	same := len(has) == len(i.Volumes)
	for k := 0; same && k < len(has); k++ {
		same = has[k].Volume.ID == i.Volumes[k].ID && has[k].Bytes == i.Volumes[k].Bytes
	}
	if same {
		return nil
	}
	return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonVolumeOther, "sandbox %s has %d volumes, and snapshot %s "+
		"was taken with %d or with others: only snapshots with the same volumes can take its place", i.ID,
		len(i.Volumes), m.Tag, len(has))
}

// hasOwnVolume reports whether a sandbox has a volume of its own.
func hasOwnVolume(i sandbox.Info) bool {
	return slices.ContainsFunc(i.Volumes, func(v sandbox.Volume) bool { return v.Mode == sandbox.VolumePrivate })
}

// flushLimit bounds the flush of a sandbox's volumes before it is ended.
const flushLimit = 5 * time.Second

// FlushVolumes makes a running guest write its volumes back before it is killed or paused: a move or the end of a paused
// sandbox leaves the volume without the guest's memory. A guest that does not answer
// in time loses what it has not written, as after a power cut.
func (v *Volumes) FlushVolumes(s *sandboxes.Sandbox, vm *vmproc.VM) { flushVolumes(v.e, s, vm) }

func flushVolumes(o *Ops, s *sandboxes.Sandbox, vm *vmproc.VM) {
	if !hasOwnVolume(s.Info()) || vm == nil || vm.Agent == nil || !vm.Alive() {
		return
	}
	ctx, cancel := context.WithTimeout(o.root, flushLimit)
	defer cancel()
	_, _ = vm.Agent.Quiesce(ctx, &agentv1.QuiesceRequest{SyncOnly: true})
}

// AdoptVolumes gives the volumes of the sandboxes of an earlier daemon back to them.
func (v *Volumes) AdoptVolumes() {
	var errs error
	for _, s := range v.e.sandboxes.All() {
		i := s.Info()
		if i.Status == sandbox.StatusFailed {
			errs = errors.Join(errs, v.settleFailed(s, i))
			continue
		}
		stacks := map[string]volume.Stack{}
		for _, d := range s.Disks().List() {
			if d.Volume != "" && d.Next == "" {
				stacks[d.Volume] = stackOf(d)
			}
		}
		for _, x := range i.Volumes {
			if x.Mode == sandbox.VolumePrivate {
				errs = errors.Join(errs, v.store.Adopt(x.ID, i.ID, stacks[x.ID]))
			}
		}
	}
	v.store.Rest()
	if errs != nil {
		v.e.cfg.Logger.Error("adopt the volumes of running sandboxes", "err", errs)
	}
}

// settleFailed records the last files of a sandbox that failed while no daemon ran.
func (v *Volumes) settleFailed(s *sandboxes.Sandbox, i sandbox.Info) (errs error) {
	if !s.DiedUnseen() {
		return nil
	}
	for _, d := range s.Disks().List() {
		if d.Volume == "" || d.Next != "" {
			continue
		}
		if now, err := v.store.Get(i.Owner, d.Volume); err != nil || now.Holder != "" {
			continue
		}
		errs = errors.Join(errs, v.store.Adopt(d.Volume, i.ID, stackOf(d)), v.store.Release(d.Volume, i.ID))
	}
	return errs
}
