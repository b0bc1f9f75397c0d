package build

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// job is a running build.
type job struct {
	b        *Builder
	template string // its ID
	id       string
	owner    string
	cpus     int
	memory   int // MiB
	plan     plan
	log      *log
	cancel   context.CancelCauseFunc

	layers []string // keys of the layers below, in order
}

// note changes the record of the build.
func (j *job) note(f func(*Template, *Build)) error {
	return j.b.cfg.Store.changeBuild(j.template, j.id, f)
}

// stepError is an error with the step that failed.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

func at(step string, err error) error {
	var already *stepError
	if err == nil || errors.As(err, &already) {
		return err
	}
	return &stepError{step, err}
}

func (j *job) prefix(step int) string { return fmt.Sprintf("[builder %d/%d]", step, j.plan.steps) }

// result is the current state of a build.
type result struct {
	tag     string // of the snapshot
	key     string // of all inputs so far
	context Context
	fresh   bool // its guest lacks the account of E2B's images
}

// run makes the template.
func (j *job) run(ctx context.Context) (result, error) {
	r, err := j.base(ctx)
	if err != nil {
		return r, at(baseStep, err)
	}
	files, err := j.files()
	if err != nil {
		return r, err
	}
	keys, forced := make([]string, len(j.plan.groups)), make([]bool, len(j.plan.groups))
	below, force := r.key, j.plan.force
	for i, g := range j.plan.groups {
		force = force || g.force
		below = g.key(below, files)
		if i == len(j.plan.groups)-1 {
			below = keyOf("end", below, j.plan.start, j.plan.ready)
		}
		keys[i], forced[i] = below, force
	}
	first := j.cached(ctx, keys, forced, &r)
	for i := first; i < len(j.plan.groups); i++ {
		if r, err = j.group(ctx, r, i, keys[i], forced[i]); err != nil {
			return r, err
		}
	}
	return r, nil
}

// cached finds the last existing layer, and returns the number of the first group to run.
func (j *job) cached(ctx context.Context, keys []string, forced []bool, r *result) (first int) {
	for i := len(keys) - 1; i >= 0; i-- {
		if forced[i] {
			continue
		}
		l, ok := j.usable(ctx, keys[i])
		if !ok {
			continue
		}
		for k := range i + 1 {
			j.reuse(k, keys[k])
		}
		*r = result{tag: l.Tag, key: keys[i], context: l.Context}
		return i + 1
	}
	return 0
}

// reuse records that a group uses another build's layer.
func (j *job) reuse(i int, key string) {
	j.b.cfg.Store.use(key, j.b.cfg.Now())
	j.layers = append(j.layers, key)
	g := j.plan.groups[i]
	for k, s := range g.steps {
		n := g.first + k
		j.log.say(LevelInfo, strconv.Itoa(n), "CACHED "+j.prefix(n)+" "+s.title())
	}
}

// usable returns the layer of a key, if its snapshot still exists.
func (j *job) usable(ctx context.Context, key string) (layer, bool) {
	l, ok := j.b.cfg.Store.layer(key)
	if !ok {
		return l, false
	}
	info, err := j.b.cfg.Engine.SnapshotInfo(ctx, l.Tag)
	return l, err == nil && info.Status == sandbox.SnapshotReady
}

// files returns the digests of the files that steps copy, by the hashes in the steps.
func (j *job) files() (map[string]string, error) {
	out := map[string]string{}
	for _, g := range j.plan.groups {
		for k, s := range g.steps {
			if s.Type != stepCopy {
				continue
			}
			digest, err := j.b.cfg.Store.digestOf(j.owner, s.FilesHash)
			if err != nil {
				return nil, at(strconv.Itoa(g.first+k), fmt.Errorf("failed to copy '%s' to '%s': %w", s.Args[0], s.Args[1], err))
			}
			out[s.FilesHash] = digest
		}
	}
	return out, nil
}

// group makes one layer on top of another. Builds that need the same layer take turns, so the
// second uses the layer the first has made.
func (j *job) group(ctx context.Context, r result, i int, key string, forced bool) (result, error) {
	g, last := j.plan.groups[i], i == len(j.plan.groups)-1
	if last && len(g.steps) == 0 && r.context.empty() && j.plan.start == "" && j.plan.ready == "" {
		return r, nil // the layer would be empty
	}
	unlock, err := j.b.keys.lock(ctx, key)
	if err != nil {
		return r, err
	}
	defer unlock()
	if l, ok := j.usable(ctx, key); ok && !forced {
		j.reuse(i, key)
		return result{tag: l.Tag, key: key, context: l.Context}, nil
	}
	l, err := j.make(ctx, r, g, last, key)
	if err != nil {
		return r, err
	}
	j.layers = append(j.layers, key)
	return result{tag: l.Tag, key: key, context: l.Context}, nil
}

// make runs a group's steps in a guest, and takes its snapshot.
func (j *job) make(ctx context.Context, r result, g group, last bool, key string) (layer, error) {
	step := finalizeStep
	if len(g.steps) > 0 {
		step = strconv.Itoa(g.first)
	}
	guest, end, err := j.fork(ctx, r.tag)
	if err != nil {
		return layer{}, at(step, err)
	}
	defer end()
	if r.fresh {
		if err := j.provision(ctx, guest); err != nil {
			return layer{}, at(baseStep, err)
		}
	}
	c := r.context
	for k, s := range g.steps {
		step = strconv.Itoa(g.first + k)
		j.log.say(LevelInfo, step, j.prefix(g.first+k)+" "+s.title())
		if c, err = j.step(ctx, guest, g.first+k, s, c); err != nil {
			return layer{}, at(step, err)
		}
	}
	if last {
		step = finalizeStep
		j.log.say(LevelInfo, step, "Finalizing template build")
		if err := j.finish(ctx, guest, c); err != nil {
			return layer{}, at(step, err)
		}
	}
	l, err := j.capture(ctx, guest, r.tag, key, c)
	return l, at(step, err)
}

// capture makes a layer of a guest. It records the intent first, so that an unrecorded snapshot can
// be found later.
func (j *job) capture(ctx context.Context, g *guest, below, key string, c Context) (layer, error) {
	if err := g.quiesce(ctx); err != nil {
		return layer{}, err
	}
	now := j.b.cfg.Now()
	l := layer{Tag: newSnapshotTag(), Below: below, Owner: j.owner, Made: now, Used: now, Context: c}
	if err := j.b.cfg.Store.intend(l); err != nil {
		return layer{}, err
	}
	start := time.Now()
	intended := l.Tag
	res, err := j.b.cfg.Engine.Branch(ctx, sandbox.BranchRequest{SandboxID: g.id, Tag: l.Tag, Mode: sandbox.BranchDiff,
		Internal: true})
	if err == nil {
		l.Tag = res.Snapshot.Tag
		err = j.b.cfg.Store.keep(key, intended, l)
	}
	if err != nil {
		j.b.forgetIntended(context.WithoutCancel(ctx), l)
		return layer{}, fmt.Errorf("take the layer's snapshot: %w", err)
	}
	j.log.say(LevelDebug, "", fmt.Sprintf("layer %s: %d KiB of memory, %s", l.Tag, res.Bytes>>10,
		time.Since(start).Round(time.Millisecond)))
	return l, nil
}
