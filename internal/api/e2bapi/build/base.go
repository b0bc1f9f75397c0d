package build

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// base returns the snapshot for the first step.
func (j *job) base(ctx context.Context) (result, error) {
	from := j.plan.base
	j.log.say(LevelInfo, baseStep, "FROM "+from.name)
	if !from.image {
		_, b, err := j.b.cfg.Store.Find(j.owner, from.name)
		switch {
		case err == nil:
			return j.onTemplate(ctx, b)
		case !errors.Is(err, sandbox.ErrNotFound):
			return result{}, err
		}
	}
	if from.ref != nil {
		return j.onImage(ctx, *from.ref)
	}
	r, err := j.onLocal(ctx, from.name)
	if errors.Is(err, sandbox.ErrNotFound) && from.hub != nil && j.b.cfg.Registry.Check(ctx, *from.hub) == nil {
		return j.onImage(ctx, *from.hub)
	}
	return r, err
}

// onLocal returns the base with the tag of a snapshot or an image.
func (j *job) onLocal(ctx context.Context, name string) (result, error) {
	info, err := j.b.cfg.Base(ctx, name, j.progress)
	if err != nil {
		return result{}, err
	}
	if j.fits(info) {
		return j.onSnapshot(info), nil
	}
	if info.Image == "" || info.ParentTag != "" {
		j.warnShape(info)
		return j.onSnapshot(info), nil
	}
	return j.resized(ctx, info)
}

// onSnapshot returns a base no build made.
func (j *job) onSnapshot(info sandbox.SnapshotInfo) result {
	key := keyOf("snapshot", j.owner, info.Tag, info.ContentHash, info.CreatedAt.UnixNano())
	return result{tag: info.Tag, key: key}
}

// onTemplate returns a base another build made. The context of that build's steps stays in effect.
func (j *job) onTemplate(ctx context.Context, b Build) (result, error) {
	info, err := j.b.cfg.Engine.SnapshotInfo(ctx, b.Snapshot)
	if err != nil {
		return result{}, err
	}
	if !j.fits(info) {
		j.warnShape(info)
	}
	j.layers = append(j.layers, b.Layers...)
	key := keyOf("template", j.owner, b.Snapshot, info.ContentHash)
	return result{tag: b.Snapshot, key: key, context: b.Context}, nil
}

// fits reports whether a snapshot's guest has the requested CPUs and memory.
func (j *job) fits(info sandbox.SnapshotInfo) bool {
	return (j.cpus == 0 || j.cpus == info.Shape.VCPUs) && (j.memory == 0 || j.memory == info.Shape.MemoryMiB)
}

func (j *job) warnShape(info sandbox.SnapshotInfo) {
	j.log.say(LevelWarn, baseStep, fmt.Sprintf("the template has the size of its base: %d CPUs and %d MiB",
		info.Shape.VCPUs, info.Shape.MemoryMiB))
}

// resized returns the image's snapshot with the requested CPUs and memory.
func (j *job) resized(ctx context.Context, of sandbox.SnapshotInfo) (result, error) {
	key := keyOf("image", j.owner, of.Image, of.ImageDigest, j.cpus, j.memory)
	return j.imageLayer(ctx, key, func() (string, error) { return of.Image, nil })
}

// imageLayer returns the snapshot of an image, which is made unless it is cached.
func (j *job) imageLayer(ctx context.Context, key string, image func() (string, error)) (result, error) {
	unlock, err := j.b.keys.lock(ctx, key)
	if err != nil {
		return result{}, err
	}
	defer unlock()
	if l, ok := j.usable(ctx, key); ok {
		j.b.cfg.Store.use(key, j.b.cfg.Now())
		j.layers = append(j.layers, key)
		return result{tag: l.Tag, key: key}, nil
	}
	name, err := image()
	if err != nil {
		return result{}, err
	}
	now := j.b.cfg.Now()
	l := layer{Tag: newSnapshotTag(), Owner: j.owner, Made: now, Used: now}
	if err := j.b.cfg.Store.intend(l); err != nil {
		return result{}, err
	}
	intended := l.Tag
	info, err := j.b.cfg.Engine.CreateSnapshot(ctx, sandbox.CreateRequest{Tag: l.Tag, Image: name, VCPUs: j.cpus,
		MemoryMiB: j.memory}, j.progress)
	if err == nil {
		l.Tag = info.Tag
		err = j.b.cfg.Store.keep(key, intended, l)
	}
	if err != nil {
		j.b.forgetIntended(context.WithoutCancel(ctx), l)
		return result{}, err
	}
	j.layers = append(j.layers, key)
	return result{tag: l.Tag, key: key}, nil
}

// progress logs the creation of a base.
func (j *job) progress(s sandbox.Step) {
	switch {
	case len(s.Output) > 0:
		j.log.output(baseStep, "[base] "+string(s.Output))
	case s.Done:
		j.log.say(LevelInfo, baseStep, fmt.Sprintf("[base] %s: done in %s", s.Name, s.Took.Round(time.Millisecond)))
	case s.Total == 0:
		j.log.say(LevelInfo, baseStep, "[base] "+s.Name)
	}
}
