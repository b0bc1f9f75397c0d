package op

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/volumes"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/store/volume"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// forkVolume is a volume that the children of a fork get.
type forkVolume struct {
	sandbox.VolumeMount
	of    volume.Volume
	stack volume.Stack
	// back returns a moved volume to the sandbox that had it. It is nil for others.
	back func()
}

// openVolumes takes the volumes of a fork. Until a child is listed, release gives the private ones back.
func (f *forkOp) openVolumes(ctx context.Context) (release func(), err error) {
	release = func() {}
	all := f.req.Volumes
	if len(all) == 0 {
		return release, nil
	}
	m := f.src.Files.Manifest
	if err := f.fitVolumes(m); err != nil {
		return release, err
	}
	release = func() {
		if b := f.children[0]; b.listed {
			return // the sandbox's end releases them
		}
		for _, v := range f.volumes {
			if v.Mode == sandbox.VolumePrivate {
				releaseVolume(f.e, v.of.ID, f.ids[0])
			}
			if v.back != nil {
				v.back()
			}
		}
	}
	for _, v := range all {
		x := forkVolume{VolumeMount: v}
		switch v.Mode {
		case sandbox.VolumePrivate:
			x.of, x.stack, err = f.e.volumes.Take(f.req.Owner, v.Name, f.ids[0])
		case sandbox.VolumeMove:
			x.Mode = sandbox.VolumePrivate
			err = f.moveVolume(ctx, &x)
		default:
			x.of, x.stack, err = f.e.volumes.Share(f.req.Owner, v.Name)
		}
		if err != nil {
			release()
			return func() {}, volumes.Error(err)
		}
		f.volumes = append(f.volumes, x)
	}
	return release, nil
}

// fitVolumes refuses volumes for which the snapshot's guest has no room.
func (f *forkOp) fitVolumes(m *snapshot.Manifest) error {
	has := m.Volumes()
	switch free := m.Shape.Slots - len(has); {
	case m.Shape.Slots == 0:
		return sandbox.Errorf(sandbox.ErrUnsupported, sandbox.ReasonVolumeSlots, "snapshot %s has no slots for volumes: "+
			"an older forkd made it, or its ancestor. Make it again from its image", m.Tag)
	case len(f.req.Volumes) > free:
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonVolumeSlots, "%d volumes were asked for, and snapshot %s "+
			"has %d free slots: it has %d volumes already", len(f.req.Volumes), m.Tag, free, len(has))
	case f.agent == nil && !m.Agent.Can(agentproto.CanVolumes):
		return sandbox.Errorf(sandbox.ErrUnsupported, sandbox.ReasonVolumeSlots, "the agent in snapshot %s mounts none: "+
			"its image is of an older forkd. Build the image again, and the snapshot from it", m.Tag)
	}
	for _, v := range f.req.Volumes {
		for _, d := range has {
			if d.Volume.Path == v.Path {
				return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonVolumePath, "snapshot %s has volume %s on %s already",
					m.Tag, d.Volume.Name, v.Path)
			}
		}
	}
	return nil
}

// plug gives a restored child its volumes. On failure the caller discards the child.
func (f *forkOp) plug(ctx context.Context, b *child) error {
	b.m.Mounts = nil
	var disks []vmm.Disk
	var open []io.Closer
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	shape := f.src.Shape()
	first := len(f.src.Restore.Disks)
	for i, v := range f.volumes {
		d, files, err := f.volumeDisk(b, v, first+i)
		open = append(open, files...)
		if err != nil {
			return fmt.Errorf("volume %s: %w", v.of.Name, err)
		}
		disks = append(disks, d)
		mount := volumeMount(first+i, first+i-shape.Disks, v.Path, v.of.Bytes)
		mount.ReadOnly = v.ReadOnly
		b.m.Mounts = append(b.m.Mounts, mount)
	}
	return client.Plug(ctx, b.m.Proc, disks)
}

// volumeMount describes a volume for the agent: the guest's disk of that index, in that spare slot.
func volumeMount(index, slot int, path string, bytes int64) *agentv1.VolumeMount {
	return &agentv1.VolumeMount{Device: "vd" + string(rune('a'+index)), Serial: fmt.Sprintf("forkd-volume-%d", slot),
		Bytes: bytes, Path: path}
}

// volumeDisk opens a volume for a child, and adds it to the child's disks. The caller closes the files, also
// after an error.
func (f *forkOp) volumeDisk(b *child, v forkVolume, index int) (d vmm.Disk, open []io.Closer, err error) {
	d.Size = v.of.Bytes
	var below []extent.Extent
	if len(v.stack.Backing) > 0 {
		chain, err := f.e.layers.Chain(v.stack.Backing...)
		if err != nil {
			return d, nil, err
		}
		open = append(open, chain)
		below = launch.DiskBase(chain.Image, d.Size)
	}
	frozen := v.stack.Files
	private := v.Mode == sandbox.VolumePrivate
	if private {
		frozen = frozen[:len(frozen)-1]
	}
	base, files, err := volume.Base(frozen, d.Size, below)
	for _, file := range files {
		open = append(open, file)
	}
	if err != nil {
		return d, open, err
	}
	d.Base = base
	reserve, limit := b.m.DiskBounds()
	if d.Reserve = reserve; !private {
		d.Limit = limit
		_, d.Overlay, err = b.m.AddClone(index, v.stack.Backing, frozen)
	} else {
		top := v.stack.Files[len(frozen)]
		if d.Overlay, err = os.OpenFile(top, os.O_RDWR, 0); err == nil {
			b.m.Disks.Set(append(b.m.Disks.List(), vmproc.Disk{Index: index, Backing: v.stack.Backing, Frozen: frozen,
				Overlay: top, Volume: v.of.ID}))
		}
	}
	if err == nil {
		open = append(open, d.Overlay)
	}
	return d, open, err
}

// volumesOf returns the volumes of a child: those of its snapshot, of which it has clones, and those of the fork.
func (f *forkOp) volumesOf() []sandbox.Volume {
	out := catalog.Volumes(f.src.Files.Manifest)
	for _, v := range f.volumes {
		out = append(out, sandbox.Volume{ID: v.of.ID, Name: v.of.Name, Path: v.Path, Mode: v.Mode, ReadOnly: v.ReadOnly,
			Bytes: v.of.Bytes})
	}
	return out
}

// pinVolumes pins the layers of volumes that a child gets clones of: the volume may get others. undo removes
// the pin of a child that is not listed.
func (f *forkOp) pinVolumes(id string, m *vmproc.VM) (undo func(), err error) {
	ids := f.src.Files.Manifest.LayerIDs()
	n := len(ids)
	for _, v := range f.volumes {
		if v.Mode != sandbox.VolumePrivate {
			ids = append(ids, v.stack.Backing...)
		}
	}
	if len(ids) == n {
		return func() {}, nil
	}
	if err := f.e.catalog.Pin(id, ids); err != nil {
		return nil, err
	}
	m.Disks.SetPinned()
	return func() { f.e.catalog.Unpin(id) }, nil
}

// releaseVolume takes a volume from a sandbox whose VM has ended.
func releaseVolume(o *Ops, id, of string) {
	if err := o.volumes.Release(id, of); err != nil {
		o.cfg.Logger.Error("release a volume", "volume", id, "sandbox", of, "err", err)
	}
}

// releaseVolumes takes the volumes from an ended sandbox.
func releaseVolumes(o *Ops, i sandbox.Info) {
	for _, x := range i.Volumes {
		if x.Mode == sandbox.VolumePrivate {
			releaseVolume(o, x.ID, i.ID)
		}
	}
}
