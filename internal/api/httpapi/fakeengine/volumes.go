package fakeengine

import (
	"fmt"
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/volumes"
	"github.com/forkd/forkd/internal/store/volume"
)

// takeVolumes takes the volumes of a fork's children, and returns those of each child. The caller holds e.mu.
func takeVolumes(e *Engine, req sandbox.ForkRequest, first string) (out []sandbox.Volume, err error) {
	if len(req.Volumes) > 0 && e.Volumes == nil {
		return nil, sandbox.Errorf(sandbox.ErrUnsupported, "", "this engine has no volumes")
	}
	for _, m := range req.Volumes {
		take := e.Volumes.Share
		if m.Mode == sandbox.VolumePrivate {
			take = func(owner, name string) (volume.Volume, volume.Stack, error) {
				return e.Volumes.Take(owner, name, first)
			}
		}
		if m.Mode == sandbox.VolumeMove {
			m.Mode = sandbox.VolumePrivate
			take = func(owner, name string) (volume.Volume, volume.Stack, error) {
				return moveVolume(e, owner, name, first)
			}
		}
		v, _, err := take(req.Owner, m.Name)
		if err != nil {
			releaseVolumes(e, sandbox.Info{ID: first, Volumes: out})
			return nil, fmt.Errorf("fork %s: %w", req.Tag, volumes.Error(err))
		}
		out = append(out, sandbox.Volume{ID: v.ID, Name: v.Name, Path: m.Path, Mode: m.Mode, ReadOnly: m.ReadOnly,
			Bytes: v.Bytes})
	}
	return out, nil
}

// moveVolume takes a volume, also from a paused sandbox, which keeps a clone. The caller holds e.mu.
func moveVolume(e *Engine, owner, name, to string) (volume.Volume, volume.Stack, error) {
	v, err := e.Volumes.Get(owner, name)
	if err != nil {
		return v, volume.Stack{}, err
	}
	from := e.entries[v.Holder]
	if from == nil || from.info.Status != sandbox.StatusPaused {
		return e.Volumes.Take(owner, name, to)
	}
	from.info.Volumes = slices.Clone(from.info.Volumes)
	for i := range from.info.Volumes {
		if from.info.Volumes[i].ID == v.ID {
			from.info.Volumes[i].Mode = sandbox.VolumeClone
		}
	}
	return e.Volumes.Move(v.ID, v.Holder, to)
}

// releaseVolumes takes the volumes of an ended sandbox back.
func releaseVolumes(e *Engine, i sandbox.Info) {
	for _, v := range i.Volumes {
		if v.Mode == sandbox.VolumePrivate {
			_ = e.Volumes.Release(v.ID, i.ID)
		}
	}
}

// clonesOf returns the volumes of copies of a sandbox or snapshot.
func clonesOf(all []sandbox.Volume) []sandbox.Volume {
	all = slices.Clone(all)
	for i := range all {
		all[i].Mode = sandbox.VolumeClone
	}
	return all
}
