package op

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sandboxes"
)

// A volume moves from a paused sandbox only. The snapshot of its pause has the volume's content at the same instant as
// its memory, so it continues with a clone of that content. A running guest has a part of the file system in its
// memory, and would write over the changes of the next one.

// moveVolume takes a volume for the fork's child, also from a paused sandbox.
func (f *forkOp) moveVolume(ctx context.Context, x *forkVolume) error {
	v, err := f.e.volumes.Get(f.req.Owner, x.Name)
	if err != nil {
		return err
	}
	if v.Holder == "" {
		x.of, x.stack, err = f.e.volumes.Take(f.req.Owner, x.Name, f.ids[0])
		return err
	}
	from := f.e.sandboxes.Lookup(v.Holder)
	if from == nil { // a fork that has not finished, or a sandbox that is being killed
		return busyVolume(x.Name, v.Holder, "is being made or ended: try again")
	}
	leave, err := from.Await(ctx)
	if err != nil {
		return err
	}
	defer leave()
	was := from.Info()
	if was.Status != sandbox.StatusPaused || was.Promoting {
		return busyVolume(x.Name, v.Holder, "is not paused: pause it, and it keeps a clone; or end it")
	}
	path := pathOf(was, v.ID)
	if err := setVolumeMode(from, path, sandbox.VolumeClone); err != nil {
		if errors.Is(err, sandboxes.ErrKilled) {
			return busyVolume(x.Name, v.Holder, "is being ended: try again")
		}
		return err
	}
	x.of, x.stack, err = f.e.volumes.Move(v.ID, v.Holder, f.ids[0])
	if err != nil {
		return errors.Join(err, setVolumeMode(from, path, sandbox.VolumePrivate))
	}
	x.back = func() { f.returnVolume(from, was, v.ID, path) }
	f.e.cfg.Logger.Info("a volume moves", "volume", v.Name, "from", was.ID, "to", f.ids[0])
	return nil
}

func busyVolume(name, holder, why string) error {
	return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonVolumeHeld, "volume %s is in sandbox %s, which %s",
		sandbox.Clip(name), holder, why)
}

// returnLimit bounds the wait for the turn of a sandbox that a volume goes back to.
const returnLimit = 5 * time.Second

// returnVolume gives a volume back to the paused sandbox that had it, because the fork has failed. If that sandbox
// was resumed or ended, the volume is free. A resume brings the volume back to its state at the pause, so the writes of
// the failed child do not matter.
func (f *forkOp) returnVolume(from *sandboxes.Sandbox, was sandbox.Info, id, path string) {
	ctx, cancel := context.WithTimeout(f.e.root, returnLimit)
	defer cancel()
	leave, err := from.Turn(ctx)
	if err != nil {
		return
	}
	defer leave()
	if now := from.Info(); now.Status != sandbox.StatusPaused || now.PausedHash != was.PausedHash {
		return
	}
	if _, _, err := f.e.volumes.Move(id, "", was.ID); err != nil {
		return // another fork has it
	}
	if err := setVolumeMode(from, path, sandbox.VolumePrivate); err != nil {
		releaseVolume(f.e, id, was.ID)
		f.e.cfg.Logger.Warn("return a volume after a failed fork", "volume", id, "sandbox", was.ID, "err", err)
	}
}

// pathOf returns the mount point of a sandbox's own volume. The sandbox may also have a clone of it, from its snapshot.
func pathOf(i sandbox.Info, id string) string {
	for _, v := range i.Volumes {
		if v.ID == id && v.Mode == sandbox.VolumePrivate {
			return v.Path
		}
	}
	return ""
}

// setVolumeMode records how a sandbox has the volume at a path.
func setVolumeMode(s *sandboxes.Sandbox, path string, mode sandbox.VolumeMode) error {
	return sandboxes.SetVolumes(s, func(all []sandbox.Volume) []sandbox.Volume {
		all = slices.Clone(all)
		for i := range all {
			if all[i].Path == path {
				all[i].Mode = mode
			}
		}
		return all
	})
}
