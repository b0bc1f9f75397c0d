package workspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// engine forks sandboxes from its tags.
type engine struct {
	mu   sync.Mutex
	tags map[string]bool
	all  map[string]sandbox.Info
	n    int
	slow chan struct{} // receives a value when a pause begins, and another to let it continue
}

func newEngine(tags ...string) *engine {
	e := &engine{tags: map[string]bool{}, all: map[string]sandbox.Info{}}
	for _, tag := range tags {
		e.tags[tag] = true
	}
	return e
}

func (e *engine) Fork(_ context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.tags[req.Tag] {
		return sandbox.ForkResult{}, sandbox.Errorf(sandbox.ErrNotFound, "", "no snapshot %s", req.Tag)
	}
	e.n++
	i := sandbox.Info{ID: fmt.Sprintf("sb-0000000%d-0001", e.n), SnapshotTag: req.Tag, Status: sandbox.StatusRunning}
	i.Limits = req.Limits
	e.all[i.ID] = i
	return sandbox.ForkResult{Children: []sandbox.Child{{Index: 1, Info: i}}}, nil
}

func (e *engine) Get(id string) (sandbox.Info, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, ok := e.all[id]
	if !ok {
		return i, sandbox.Errorf(sandbox.ErrNotFound, "", "no sandbox %s", id)
	}
	return i, nil
}

func (e *engine) set(id string, s sandbox.Status, tag string) (sandbox.Info, error) {
	i, err := e.Get(id)
	e.mu.Lock()
	defer e.mu.Unlock()
	if i.Status = s; tag != "" {
		i.PausedIn = tag
	}
	e.all[id] = i
	return i, err
}

func (e *engine) Kill(_ context.Context, id string) error {
	if _, err := e.Get(id); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.all, id)
	return nil
}

func (e *engine) Pause(_ context.Context, id string, _ sandbox.PauseOptions) (sandbox.Info, error) {
	if e.slow != nil {
		<-e.slow
		<-e.slow
	}
	tag := "pause-" + id
	e.tags[tag] = true
	return e.set(id, sandbox.StatusPaused, tag)
}

func (e *engine) Resume(_ context.Context, id string) (sandbox.Info, error) {
	return e.set(id, sandbox.StatusRunning, "")
}

func open(t *testing.T, path string) *Book {
	t.Helper()
	b, err := Open(path, func() time.Time { return time.Unix(1_800_000_000, 0) })
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAWorkspaceOutlivesTheDaemon(t *testing.T) {
	path, e := filepath.Join(t.TempDir(), "workspaces.json"), newEngine("py")
	b := open(t, path)
	made, err := b.Create(t.Context(), e, "desk", sandbox.ForkRequest{Tag: "py"})
	if err != nil || made.Status != Running || made.Source != "py" || made.ID != "ws-sb-00000001-0001" {
		t.Fatalf("got %+v, %v", made, err)
	}
	b = open(t, path)
	got, err := b.Suspend(t.Context(), e, "desk")
	if err != nil || got.Status != Suspended || got.Sandbox != "" || got.State != "pause-sb-00000001-0001" {
		t.Fatalf("suspended it is %+v, %v", got, err)
	}
	b = open(t, path)
	if got, err = b.Resume(t.Context(), e, "desk"); err != nil || got.Status != Running || got.Sandbox != made.Sandbox {
		t.Fatalf("resumed it is %+v, %v", got, err)
	}
	if err := b.Delete(t.Context(), e, "desk"); err != nil || len(e.all) != 0 || len(open(t, path).all) != 0 {
		t.Errorf("deleted: %v, %d sandboxes", err, len(e.all))
	}
}

// The snapshot that a workspace was made of is renamed, also during a change of the workspace.
func TestAWorkspaceFollowsARenaming(t *testing.T) {
	path, e := filepath.Join(t.TempDir(), "workspaces.json"), newEngine("py")
	b := open(t, path)
	if _, err := b.Create(t.Context(), e, "desk", sandbox.ForkRequest{Tag: "py"}); err != nil {
		t.Fatal(err)
	}
	whole, r, err := b.begin(t.Context(), "desk")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Renamed("py", "python"); err != nil {
		t.Fatal(err)
	}
	if err := b.put(whole, &r); err != nil {
		t.Fatal(err)
	}
	b.release(whole)
	if err := b.Renamed("other", "py"); err != nil {
		t.Fatal(err)
	}
	if got, err := open(t, path).Get(t.Context(), e, "desk"); err != nil || got.Source != "python" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAStaleWorkspaceIsMadeOfWhatWasKept(t *testing.T) {
	e := newEngine("py")
	b := open(t, filepath.Join(t.TempDir(), "w"))
	made, err := b.Create(t.Context(), e, "desk", sandbox.ForkRequest{Tag: "py", Limits: sandbox.Limits{MemoryMiB: 99}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Suspend(t.Context(), e, "desk"); err != nil {
		t.Fatal(err)
	}
	delete(e.all, made.Sandbox) // the host ended
	if got, _ := b.Get(t.Context(), e, "desk"); got.Status != Stale {
		t.Errorf("it is %+v", got)
	}
	if _, err := b.Suspend(t.Context(), e, "desk"); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("suspend: %v", err)
	}
	delete(e.tags, "pause-"+made.Sandbox)
	if _, err := b.Resume(t.Context(), e, "desk"); !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), "pause-") {
		t.Errorf("its state is gone, and resume says %v", err)
	}
	e.tags["pause-"+made.Sandbox] = true
	got, err := b.Resume(t.Context(), e, "desk")
	if err != nil || got.Status != Running || got.Sandbox == made.Sandbox || e.all[got.Sandbox].SnapshotTag != "pause-"+made.Sandbox ||
		e.all[got.Sandbox].Limits.MemoryMiB != 99 {
		t.Errorf("resumed it is %+v, %v", got, err)
	}
}

func TestOneRequestChangesAName(t *testing.T) {
	e := newEngine("py")
	b := open(t, filepath.Join(t.TempDir(), "w"))
	if _, err := b.Create(t.Context(), e, "desk", sandbox.ForkRequest{Tag: "py"}); err != nil {
		t.Fatal(err)
	}
	e.slow = make(chan struct{})
	ended := make(chan error)
	go func() {
		_, err := b.Suspend(t.Context(), e, "desk")
		ended <- err
	}()
	e.slow <- struct{}{}
	if err := b.Delete(t.Context(), e, "desk"); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("deleted while it is suspended: %v", err)
	}
	e.slow <- struct{}{}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := b.Create(t.Context(), e, "desk", sandbox.ForkRequest{Tag: "py"}); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("made twice: %v", err)
	}
}

func TestTenantsNamesDoNotMeet(t *testing.T) {
	e := newEngine("py")
	b := open(t, filepath.Join(t.TempDir(), "w"))
	acme := principal.With(t.Context(), principal.Principal{KeyID: "k1", Tenant: "acme"})
	evil := principal.With(t.Context(), principal.Principal{KeyID: "k2", Tenant: "evil"})
	for _, ctx := range []context.Context{acme, evil, t.Context()} {
		if _, err := b.Create(ctx, e, "desk", sandbox.ForkRequest{Tag: "py"}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := b.Get(acme, e, "desk"); err != nil || got.Name != "acme-desk" || got.Owner != "acme" {
		t.Errorf("acme's is %+v, %v", got, err)
	}
	for _, do := range []func() error{
		func() error { _, err := b.Get(evil, e, "acme-desk"); return err },
		func() error { _, err := b.Suspend(evil, e, "acme-desk"); return err },
		func() error { _, err := b.Resume(evil, e, "acme-desk"); return err },
		func() error { return b.Delete(evil, e, "acme-desk") },
	} {
		if err := do(); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("another's: %v", err)
		}
	}
	if got := b.List(evil, e); len(got) != 1 || got[0].Name != "evil-desk" {
		t.Errorf("evil's list is %+v", got)
	}
	if got := b.List(t.Context(), e); len(got) != 3 {
		t.Errorf("the operator's list is %+v", got)
	}
}

func TestNothingIsLeftOfAFailure(t *testing.T) {
	e, dir := newEngine("py"), t.TempDir()
	b := open(t, filepath.Join(dir, "sub", "w"))
	if _, err := b.Create(t.Context(), e, "desk", sandbox.ForkRequest{Tag: "py"}); err == nil || len(e.all) != 0 || len(b.busy) != 0 {
		t.Errorf("the list could not be written: %v, %d sandboxes", err, len(e.all))
	}
	if _, err := b.Create(t.Context(), e, "desk", sandbox.ForkRequest{Tag: "ghost"}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("of no snapshot: %v", err)
	}
	if _, err := Nowhere().Create(t.Context(), e, "desk", sandbox.ForkRequest{Tag: "py"}); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("nowhere: %v", err)
	}
	if _, err := Nowhere().Get(t.Context(), e, "desk"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("nowhere: %v", err)
	}
}

func TestTheFileOfVersion1(t *testing.T) {
	want := map[string]record{
		"acme-desk": {ID: "ws-sb-00000001-0001", Owner: "acme", Sandbox: "sb-00000003-0001", Source: "py",
			State: "pause-sb-00000001-0001-00000001", MemoryLimitMiB: 512, Created: 1_800_000_000, Active: 1_800_000_060},
	}
	golden := filepath.Join("testdata", "workspaces-v1.json")
	path := filepath.Join(t.TempDir(), "w")
	if err := writeFile(path, want); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(b) {
		t.Errorf("written is %s, %v", got, err)
	}
	if got, err := readFile(golden); err != nil || !maps.Equal(got, want) {
		t.Errorf("read is %+v, %v", got, err)
	}
}

func FuzzDecode(f *testing.F) {
	b, err := os.ReadFile(filepath.Join("testdata", "workspaces-v1.json"))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{string(b), `{"format":2}`, `{"format":1,"workspaces":null}`, `{"format":1,"workspaces":{"../x":{}}}`,
		strings.Replace(string(b), `"py"`, `"../py"`, 1), `[]`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := decode(b)
		if err != nil {
			return
		}
		for name, r := range all {
			if err := r.check(name); err != nil {
				t.Error(err)
			}
		}
	})
}
