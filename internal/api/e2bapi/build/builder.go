package build

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// Builder runs builds.
type Builder struct {
	cfg    Config
	secret []byte // for the signatures of upload links
	keys   keyLock
	turns  *fair // of running builds
	logs   *logs

	root context.Context
	stop context.CancelCauseFunc

	left  []leftover // sandboxes from builds of another process, until Run
	stray []layer    // snapshots that these builds were about to make

	mu      sync.Mutex // guards the fields below; while it is held, only the store's lock may be taken
	jobs    map[string]*job
	running sync.WaitGroup // Add only under mu while !closed
	closed  bool
}

// Causes for the end of a build that did not fail by itself.
var (
	errStopped  = errors.New("the daemon was stopped during the build")
	errDeleted  = errors.New("the template was deleted during the build")
	errLost     = errors.New("the daemon ended during the build; nothing of it was kept but finished layers")
	errNotBegun = errors.New("the daemon ended before the build began")
)

// New returns a Builder, and settles the builds of an earlier process: unfinished builds are marked
// as failed. Run removes their sandboxes and intended snapshots.
func New(cfg Config) *Builder {
	b := &Builder{cfg: cfg.complete(), jobs: map[string]*job{}}
	b.logs = newLogs(b.cfg.Now, b.cfg.LogBytes)
	b.secret = make([]byte, 32)
	_, _ = rand.Read(b.secret) // never fails
	b.turns = newFair(b.cfg.Parallel, 0)
	b.root, b.stop = context.WithCancelCause(context.Background())
	b.settle()
	return b
}

// Run removes leftovers and collects layers until ctx ends. It then ends the running builds and
// waits for them.
func (b *Builder) Run(ctx context.Context) {
	b.clear(ctx)
	b.collect(ctx)
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			b.collect(ctx)
			continue
		case <-ctx.Done():
		}
		b.Close()
		return
	}
}

// Close ends the running builds and waits for them. A second call also waits.
func (b *Builder) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.stop(errStopped)
	b.running.Wait()
}

// Request creates a build of a template by its name. Start begins it.
func (b *Builder) Request(owner, name string, tags []string, cpus, memoryMiB int) (Template, Build, error) {
	name, tag, err := ParseName(name)
	if err != nil {
		return Template{}, Build{}, err
	}
	if tag != "" {
		tags = append([]string{tag}, tags...)
	}
	if tags, err = CheckTags(tags); err != nil {
		return Template{}, Build{}, err
	}
	if len(tags) == 0 {
		tags = []string{DefaultTag}
	}
	if cpus < 0 || cpus > 1024 || memoryMiB < 0 || memoryMiB > 1<<24 {
		return Template{}, Build{}, sandbox.Errorf(sandbox.ErrInvalid, "",
			"%d CPUs and %d MiB: no machine is like that", cpus, memoryMiB)
	}
	made := Build{ID: newBuildID(), Tags: tags, Requested: b.cfg.Now(), CPUs: cpus, MemoryMiB: memoryMiB, Status: Waiting}
	t, err := b.cfg.Store.request(owner, name, made)
	return t, made, err
}

// Start begins a requested build for the caller in ctx. The build continues after ctx ends.
func (b *Builder) Start(ctx context.Context, owner, template, id string, r Request) error {
	t, err := b.cfg.Store.Template(owner, template)
	if err != nil {
		return err
	}
	p, err := planOf(ctx, r, b.cfg.Registry)
	if err != nil {
		return err
	}
	j := &job{b: b, template: t.ID, id: id, owner: owner, plan: p}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return sandbox.Errorf(sandbox.ErrClosing, "", "%w", errStopped)
	case len(b.jobs) >= b.cfg.Queue:
		return sandbox.Errorf(sandbox.ErrBusy, "", "%d builds wait or run", len(b.jobs))
	case owner != "" && b.countLocked(owner) >= b.cfg.QueueEach:
		return sandbox.Errorf(sandbox.ErrBusy, "", "%d builds of the tenant wait or run, which is the most",
			b.cfg.QueueEach)
	}
	begun := false
	err = j.note(func(_ *Template, made *Build) {
		if begun = !made.Begun && made.Status == Waiting; begun {
			made.Begun = true
			j.cpus, j.memory = made.CPUs, made.MemoryMiB
		}
	})
	switch {
	case err != nil:
		return err
	case !begun:
		return sandbox.Errorf(sandbox.ErrInvalid, "", "build %s has begun already", id)
	}
	work, cancel := context.WithCancelCause(principal.With(context.WithoutCancel(ctx), principal.From(ctx)))
	work = principal.Bind(ctx, work)
	j.cancel = cancel
	b.jobs[id], j.log = j, b.logs.begin(owner, id)
	detach := context.AfterFunc(b.root, func() { cancel(context.Cause(b.root)) })
	b.running.Go(func() {
		defer detach()
		defer cancel(nil)
		b.carryOut(work, j)
	})
	return nil
}

func (b *Builder) countLocked(owner string) (n int) {
	for _, j := range b.jobs {
		if j.owner == owner {
			n++
		}
	}
	return n
}

// carryOut runs a build when it has its turn, and records the result.
func (b *Builder) carryOut(ctx context.Context, j *job) {
	r, err := b.inTurn(ctx, j)
	if err != nil && ctx.Err() != nil {
		err = at(stepOf(err), context.Cause(ctx))
	}
	b.conclude(j, r, err)
	b.mu.Lock()
	delete(b.jobs, j.id)
	b.mu.Unlock()
	b.logs.end(j.log)
	b.collect(context.WithoutCancel(ctx))
}

func (b *Builder) inTurn(ctx context.Context, j *job) (result, error) {
	done, err := b.turns.take(ctx, j.owner)
	if err != nil {
		return result{}, err
	}
	defer done()
	if err := j.note(func(_ *Template, made *Build) { made.Status = Building }); err != nil {
		return result{}, err
	}
	r, err := j.run(ctx)
	if err == nil {
		err = ctx.Err() // a cancelled build counts as failed, even if it reached its end
	}
	return r, err
}

func stepOf(err error) string {
	var s *stepError
	errors.As(err, &s)
	if s == nil {
		return ""
	}
	return s.step
}

// conclude records a build's end and gives the build its tags.
func (b *Builder) conclude(j *job, r result, err error) {
	now := b.cfg.Now()
	end := func(t *Template, made *Build) {
		made.Status, made.Finished, made.Sandbox = Ready, now, ""
		made.Snapshot, made.Layers, made.Context = r.tag, j.layers, r.context
		t.assign(*made, made.Tags, now)
	}
	if err != nil {
		step := stepOf(err)
		said := guesttext.ClipLines(explain(err), guesttext.MaxLines)
		reason := &Reason{Message: said, Step: step, Entries: j.log.of(step, 50)}
		j.log.say(LevelError, step, "Build failed: "+reason.Message)
		end = func(_ *Template, made *Build) {
			made.Status, made.Finished, made.Reason = Failed, now, reason
		}
	} else {
		j.log.say(LevelInfo, finalizeStep, "Build finished")
	}
	if err := j.note(end); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		b.cfg.Log.Error("note the end of a build", "build", j.id, "error", err)
	}
}

// Log returns entries of a build's log, beginning at an offset.
func (b *Builder) Log(id string, offset, limit int) []Entry {
	l := b.logs.get(id)
	if l == nil {
		return []Entry{}
	}
	return l.from(offset, limit)
}
