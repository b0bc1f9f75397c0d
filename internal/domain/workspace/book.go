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

// Status is how a workspace is.
type Status string

// The states, as the original names them.
const (
	Running   Status = "running"
	Suspended Status = "suspended" // its sandbox is paused
	Stale     Status = "stale"     // its sandbox has ended; Resume makes another
)

// Workspace is one as it is now.
type Workspace struct {
	ID, Name, Owner string
	Source          string // tag of the snapshot that it was made of
	State           string // tag of that of its last suspend; empty: there was none
	Status          Status
	Sandbox         string // empty unless it runs
	Created, Active time.Time
}

// Engine is what a workspace is made with, as who asks may see it.
type Engine interface {
	Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error)
	Get(id string) (sandbox.Info, error)
	Kill(ctx context.Context, id string) error
	Pause(ctx context.Context, id string, opt sandbox.PauseOptions) (sandbox.Info, error)
	Resume(ctx context.Context, id string) (sandbox.Info, error)
}

// Book has the names; without a path none can be made. Its methods are safe for concurrent use; one operation at a time changes a name.
type Book struct {
	path string
	now  func() time.Time

	mu   sync.Mutex // guards what follows, and is held while the file is written
	all  map[string]record
	busy map[string]bool // names that an operation is changing
}

// Open reads the file at path, which need not be there. now is for tests; nil is time.Now.
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

// Nowhere is a Book without a file: no workspace is there, and none can be made.
func Nowhere() *Book { return &Book{now: time.Now, busy: map[string]bool{}} }

// List are the workspaces that are there for who asks, by name.
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

// Get is one of them.
func (b *Book) Get(ctx context.Context, e Engine, name string) (Workspace, error) {
	b.mu.Lock()
	whole, r, ok := b.findLocked(principal.From(ctx), name)
	b.mu.Unlock()
	if !ok {
		return Workspace{}, missing(name)
	}
	return r.now(whole, e), nil
}

// Create forks a sandbox of a snapshot and gives it a name. Names are in one list; a tenant's begin
// with its own and a dash, as its tags do.
func (b *Book) Create(ctx context.Context, e Engine, name string, req sandbox.ForkRequest) (Workspace, error) {
	if b.path == "" {
		return Workspace{}, sandbox.Errorf(sandbox.ErrUnsupported, "", "this daemon has nowhere to keep workspaces")
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

// Suspend pauses a workspace's sandbox, which has no process and no memory then.
func (b *Book) Suspend(ctx context.Context, e Engine, name string) (Workspace, error) {
	return b.change(ctx, name, func(whole string, r *record) error {
		if w := r.now(whole, e); w.Status != Running {
			return sandbox.Errorf(sandbox.ErrInvalid, "", "workspace %s is %s: only one that runs can be suspended",
				whole, w.Status)
		}
		info, err := e.Pause(ctx, r.Sandbox, sandbox.PauseOptions{})
		r.State = info.PausedIn
		return err
	}, e)
}

// Resume lets a suspended one go on, with the same sandbox. A stale one gets another, of the snapshot
// of its last suspend; if it never was suspended, of the one that it was made of.
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

// Delete ends a workspace's sandbox, and with it what it was suspended in. The snapshot that it was made
// of stays.
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

// change does something to a workspace and keeps what became of it.
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

// begin finds a workspace and keeps others from changing it until it is released.
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

// claim is begin for a name that is to be new.
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
		return sandbox.Errorf(sandbox.ErrConflict, "", "there are %d workspaces, and more cannot be", maxNames)
	}
	b.busy[whole] = true
	return nil
}

// shareLocked returns how many workspaces a tenant can have: as many as are still free, so that tenants
// which take all they can end with equal shares and leave one for the next. The names beyond maxBeyond
// are kept for tenants with fewer than minOfTenant and for the operator.
func (b *Book) shareLocked() int {
	return max(minOfTenant, min(maxOfTenant, maxBeyond-len(b.all)))
}

// heldLocked counts a tenant's workspaces and those under way, which begin with its name.
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

// put keeps a record; nil: there is none any more.
func (b *Book) put(whole string, r *record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := maps.Clone(b.all)
	delete(next, whole)
	if r != nil {
		r.Active = b.now().Unix()
		next[whole] = *r
	}
	if err := writeFile(b.path, next); err != nil {
		return fmt.Errorf("write the list of workspaces: %w", err)
	}
	b.all = next
	return nil
}

// findLocked finds what a name stands for: a tenant may leave the beginning of its names out.
func (b *Book) findLocked(who principal.Principal, name string) (string, record, bool) {
	if whole, err := newName(who, name); err == nil && whole != name {
		if r, ok := b.all[whole]; ok && r.Owner == who.Tenant {
			return whole, r, true
		}
	}
	r, ok := b.all[name]
	return name, r, ok && who.Sees(r.Owner)
}

// now is the workspace as its sandbox is.
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

// renew gives a stale workspace another sandbox. What is left of the one that failed goes when the new
// one stands: it may be in the snapshot that the new one is made of.
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

// fork makes the sandbox.
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

// newName is the whole name of a workspace that somebody makes.
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
