package workspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Status is the state of a workspace.
type Status string

// The states, with the original's names.
const (
	Running   Status = "running"
	Suspended Status = "suspended" // its sandbox is paused
	Stale     Status = "stale"     // its sandbox has ended; Resume creates a new one
)

// Workspace describes a workspace's current state.
type Workspace struct {
	ID, Name, Owner string
	Source          string // tag of its original snapshot
	State           string // tag of its last suspend's snapshot; empty before the first one
	Status          Status
	Sandbox         string // empty unless it is running
	Created, Active time.Time
}

// Engine is the engine for workspaces, as visible to the caller.
type Engine interface {
	Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error)
	Get(id string) (sandbox.Info, error)
	Kill(ctx context.Context, id string) error
	Pause(ctx context.Context, id string, opt sandbox.PauseOptions) (sandbox.Info, error)
	Resume(ctx context.Context, id string) (sandbox.Info, error)
}

// Book holds the names. Without a path, no workspace can be created. Its methods are safe for concurrent use. A
// name is changed by one operation at a time.
type Book struct {
	path string
	now  func() time.Time

	mu   sync.Mutex // guards the fields below; held while the file is written
	all  map[string]record
	busy map[string]bool // names being changed by an operation
}

// Open reads the file at path, which may be missing. now is for tests; nil means time.Now.
func Open(path string, now func() time.Time) (*Book, error) {
	if now == nil {
		now = time.Now
	}
	all, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &Book{path: path, now: now, all: all, busy: map[string]bool{}}, nil
}

// Nowhere returns a Book without a file. It has no workspaces, and cannot create any.
func Nowhere() *Book { return &Book{now: time.Now, busy: map[string]bool{}} }

// List returns the workspaces visible to the caller, sorted by name.
func (b *Book) List(ctx context.Context, e Engine) []Workspace {
	who := principal.From(ctx)
	b.mu.Lock()
	all := maps.Clone(b.all)
	b.mu.Unlock()
	out := []Workspace{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if r := all[name]; who.Sees(r.Owner) {
			out = append(out, r.now(name, e))
		}
	}
	return out
}

// Get returns one workspace.
func (b *Book) Get(ctx context.Context, e Engine, name string) (Workspace, error) {
	b.mu.Lock()
	whole, r, ok := b.findLocked(principal.From(ctx), name)
	b.mu.Unlock()
	if !ok {
		return Workspace{}, missing(name)
	}
	return r.now(whole, e), nil
}

// Create forks a sandbox of a snapshot and gives it a name. Names share one namespace; a tenant's names begin
// with the tenant's name and a dash, like its tags.
func (b *Book) Create(ctx context.Context, e Engine, name string, req sandbox.ForkRequest) (Workspace, error) {
	if b.path == "" {
		return Workspace{}, sandbox.Errorf(sandbox.ErrUnsupported, "", "this daemon has no file for workspaces")
	}
	who := principal.From(ctx)
	whole, err := newName(who, name)
	if err != nil {
		return Workspace{}, err
	}
	if err := b.claim(whole, who.Tenant); err != nil {
		return Workspace{}, err
	}
	defer b.release(whole)
	r := record{Owner: who.Tenant, MemoryLimitMiB: req.Limits.MemoryMiB, Created: b.now().Unix()}
	info, err := r.fork(ctx, e, req.Tag)
	if err != nil {
		return Workspace{}, err
	}
	r.Source, r.ID = info.SnapshotTag, "ws-"+info.ID[:min(len(info.ID), 16)]
	if err := b.put(whole, &r); err != nil {
		return Workspace{}, errors.Join(err, e.Kill(context.WithoutCancel(ctx), r.Sandbox))
	}
	return r.now(whole, e), nil
}

// Suspend pauses a workspace's sandbox, which then has no process and no memory.
func (b *Book) Suspend(ctx context.Context, e Engine, name string) (Workspace, error) {
	return b.change(ctx, name, func(whole string, r *record) error {
		if w := r.now(whole, e); w.Status != Running {
			return sandbox.Errorf(sandbox.ErrInvalid, "", "workspace %s is %s: only a running one can be suspended",
				whole, w.Status)
		}
		info, err := e.Pause(ctx, r.Sandbox, sandbox.PauseOptions{})
		r.State = info.PausedIn
		return err
	}, e)
}

// Resume resumes a suspended workspace with the same sandbox. A stale workspace gets a new sandbox, forked from
// the snapshot of its last suspend, or from its original snapshot if it was never suspended.
func (b *Book) Resume(ctx context.Context, e Engine, name string) (Workspace, error) {
	return b.change(ctx, name, func(whole string, r *record) error {
		switch w := r.now(whole, e); w.Status {
		case Running:
			return sandbox.Errorf(sandbox.ErrInvalid, "", "workspace %s is running already, in sandbox %s", whole, w.Sandbox)
		case Suspended:
			_, err := e.Resume(ctx, r.Sandbox)
			return err
		}
		return r.renew(ctx, e, whole)
	}, e)
}

// Delete ends a workspace's sandbox and deletes the snapshot of its last suspend. The original snapshot stays.
func (b *Book) Delete(ctx context.Context, e Engine, name string) error {
	whole, r, err := b.begin(ctx, name)
	if err != nil {
		return err
	}
	defer b.release(whole)
	if err := e.Kill(ctx, r.Sandbox); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return err
	}
	return b.put(whole, nil)
}

// change runs an operation on a workspace and stores the result.
func (b *Book) change(ctx context.Context, name string, do func(whole string, r *record) error,
	e Engine) (Workspace, error) {
	whole, r, err := b.begin(ctx, name)
	if err != nil {
		return Workspace{}, err
	}
	defer b.release(whole)
	if err := do(whole, &r); err != nil {
		return Workspace{}, err
	}
	if err := b.put(whole, &r); err != nil {
		return Workspace{}, err
	}
	return r.now(whole, e), nil
}

// begin finds a workspace and blocks other changes to it until it is released.
func (b *Book) begin(ctx context.Context, name string) (string, record, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	whole, r, ok := b.findLocked(principal.From(ctx), name)
	if !ok {
		return "", record{}, missing(name)
	}
	if b.busy[whole] {
		return "", record{}, underWay(whole)
	}
	b.busy[whole] = true
	return whole, r, nil
}

// claim is begin for a new name.
func (b *Book) claim(whole, owner string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch _, taken := b.all[whole]; {
	case taken:
		return sandbox.Errorf(sandbox.ErrConflict, "", "workspace %s is there already", whole)
	case b.busy[whole]:
		return underWay(whole)
	case owner != "" && b.heldLocked(owner) >= b.shareLocked():
		return sandbox.Errorf(sandbox.ErrConflict, "",
			"the tenant has %d workspaces, and cannot have more now: delete some", b.heldLocked(owner))
	case len(b.all)+len(b.busy) >= maxNames:
		return sandbox.Errorf(sandbox.ErrConflict, "", "the limit of %d workspaces is reached", maxNames)
	}
	b.busy[whole] = true
	return nil
}

// shareLocked returns how many workspaces a tenant can have: as many as are still free. So tenants that take all
// they can get end with equal shares, and one share remains for the next tenant. The names beyond maxBeyond are
// reserved for tenants with fewer than minOfTenant and for the operator.
func (b *Book) shareLocked() int {
	return max(minOfTenant, min(maxOfTenant, maxBeyond-len(b.all)))
}

// heldLocked counts a tenant's workspaces and the ones being created, whose names begin with the tenant's.
func (b *Book) heldLocked(owner string) (n int) {
	for _, r := range b.all {
		if r.Owner == owner {
			n++
		}
	}
	for name := range b.busy {
		if _, there := b.all[name]; !there && strings.HasPrefix(name, owner+"-") {
			n++
		}
	}
	return n
}

func (b *Book) release(whole string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.busy, whole)
}

// put stores a record. If r is nil, it deletes the record.
func (b *Book) put(whole string, r *record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := maps.Clone(b.all)
	delete(next, whole)
	if r != nil {
		r.Active = b.now().Unix()
		if was, ok := b.all[whole]; ok {
			r.Source = was.Source // it may have been renamed meanwhile
		}
		next[whole] = *r
	}
	return b.writeLocked(next)
}

func (b *Book) writeLocked(next map[string]record) error {
	if err := writeFile(b.path, next); err != nil {
		return fmt.Errorf("write the list of workspaces: %w", err)
	}
	b.all = next
	return nil
}

// Renamed replaces the tag of a renamed snapshot, in all workspaces that were forked from it.
func (b *Book) Renamed(tag, to string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	next, changed := maps.Clone(b.all), false
	for name, r := range next {
		if r.Source == tag {
			r.Source, changed = to, true
			next[name] = r
		}
	}
	if !changed {
		return nil
	}
	return b.writeLocked(next)
}

// Of returns the name of the workspace that a sandbox belongs to, or an empty string.
func (b *Book) Of(id string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, r := range b.all {
		if r.Sandbox == id {
			return name
		}
	}
	return ""
}

// findLocked finds the workspace for a name. A tenant may omit the prefix of its names.
func (b *Book) findLocked(who principal.Principal, name string) (string, record, bool) {
	if whole, err := newName(who, name); err == nil && whole != name {
		if r, ok := b.all[whole]; ok && r.Owner == who.Tenant {
			return whole, r, true
		}
	}
	r, ok := b.all[name]
	return name, r, ok && who.Sees(r.Owner)
}

// now returns the workspace with its sandbox's current state.
func (r record) now(name string, e Engine) Workspace {
	w := Workspace{ID: r.ID, Name: name, Owner: r.Owner, Source: r.Source, State: r.State,
		Status: Running, Sandbox: r.Sandbox, Created: time.Unix(r.Created, 0), Active: time.Unix(r.Active, 0)}
	info, err := e.Get(r.Sandbox)
	switch {
	case err != nil, info.Status == sandbox.StatusFailed:
		w.Status, w.Sandbox = Stale, ""
	case info.Status == sandbox.StatusPaused, info.Status == sandbox.StatusResuming:
		w.Status, w.Sandbox = Suspended, ""
	}
	if err == nil && info.PausedIn != "" { // it may have been paused by its id since
		w.State = info.PausedIn
	}
	return w
}

// renew creates a new sandbox for a stale workspace. The failed sandbox is removed only after that, because the
// new one may be forked from its snapshot.
func (r *record) renew(ctx context.Context, e Engine, whole string) error {
	old, from := r.Sandbox, r.now(whole, e).State
	if from == "" {
		from = r.Source
	}
	if _, err := r.fork(ctx, e, from); errors.Is(err, sandbox.ErrNotFound) {
		return sandbox.Errorf(sandbox.ErrConflict, "",
			"workspace %s cannot be resumed: its sandbox %s has ended, and snapshot %s is gone; delete the workspace",
			whole, old, from)
	} else if err != nil {
		return err
	}
	if err := e.Kill(ctx, old); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return errors.Join(err, e.Kill(context.WithoutCancel(ctx), r.Sandbox))
	}
	return nil
}

// fork creates the sandbox.
func (r *record) fork(ctx context.Context, e Engine, tag string) (sandbox.Info, error) {
	req := sandbox.ForkRequest{Tag: tag, N: 1, Limits: sandbox.Limits{MemoryMiB: r.MemoryLimitMiB}}
	res, err := e.Fork(ctx, req)
	if err == nil && len(res.Children) > 0 {
		err = res.Children[0].Err
	}
	if err != nil {
		return sandbox.Info{}, err
	}
	info := res.Children[0].Info
	r.Sandbox = info.ID
	return info, nil
}

// newName returns the whole name of a new workspace.
func newName(who principal.Principal, name string) (string, error) {
	if err := snapshot.CheckTag(name); err != nil {
		return "", sandbox.Errorf(sandbox.ErrInvalid, "", "name %.80q: want 1 to 64 letters, digits, - or _", name)
	}
	prefix := who.Tenant + "-"
	if who.Operator() || strings.HasPrefix(name, prefix) {
		return name, nil
	}
	if snapshot.CheckTag(prefix+name) != nil {
		return "", sandbox.Errorf(sandbox.ErrInvalid, "",
			"workspace %s: with the tenant's name before it it is too long", name)
	}
	return prefix + name, nil
}

func missing(name string) error {
	return sandbox.Errorf(sandbox.ErrNotFound, "", "workspace %s not found", name)
}

func underWay(name string) error {
	return sandbox.Errorf(sandbox.ErrConflict, "", "workspace %s is being changed by another request", name)
}
