package catalog

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// bench is a catalog over its own stores, with the sandboxes running from its snapshots.
type bench struct {
	*Catalog
	t   testing.TB
	dir string
	cfg Config

	mu        sync.Mutex
	sandboxes map[string]snapshot.Parent // by id, the snapshots that they run from
	pinned    map[string]string          // by id, the content hash of the deleted snapshot
	deleted   []string
	told      []string // events, as "kind tag reason"
	acts      []sandbox.Act
	details   []string // events, as "kind tag key=value ..."
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), sandboxes: map[string]snapshot.Parent{}, pinned: map[string]string{}}
	never := func(ctx context.Context) error { return ctx.Err() }
	b.cfg = Config{
		Sandboxes: b, Deleted: b.noteDeleted, Tell: b.tell, Acts: b.act, AwaitForks: never, AwaitBranches: never,
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}
	b.reopen()
	return b
}

// reopen acts as the next daemon.
func (b *bench) reopen() {
	b.t.Helper()
	layers, err := store.Open(filepath.Join(b.dir, "layers"), store.Options{})
	b.must(err)
	snapshots, err := snapshot.OpenStore(filepath.Join(b.dir, "snapshots"), layers)
	b.must(err)
	b.cfg.Layers, b.cfg.Snapshots = layers, snapshots
	b.Catalog, err = Open(b.cfg)
	b.must(err)
}

// run does the background work until the test ends, or stop is called.
func (b *bench) run() (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Run(ctx)
	}()
	stop = func() { cancel(); <-done }
	b.t.Cleanup(stop)
	return stop
}

func (b *bench) act(a sandbox.Act) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acts = append(b.acts, a)
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) Using(tag, hash string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []string
	for id, from := range b.sandboxes {
		if from.Tag == tag && (hash == "" || from.ContentHash == hash) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (b *bench) Bases() map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]bool{}
	for _, from := range b.sandboxes {
		out[from.ContentHash] = true
	}
	return out
}

func (b *bench) PinLayers(of snapshot.Entry) error {
	for _, id := range b.Using(of.Tag, of.ContentHash) {
		if err := b.Pin(id, of.Manifest.LayerIDs()); err != nil {
			return err
		}
		b.mu.Lock()
		_, lives := b.sandboxes[id]
		b.pinned[id] = of.ContentHash
		b.mu.Unlock()
		if !lives { // it ended meanwhile and did not know of the pin
			b.Unpin(id)
		}
	}
	return nil
}

func (b *bench) noteDeleted(tag string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deleted = append(b.deleted, tag)
}

func (b *bench) tell(kind, tag string, detail map[string]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := kind + " " + tag
	for key, value := range detail {
		text += " " + key + "=" + value
	}
	b.details = append(b.details, text)
	b.told = append(b.told, strings.TrimSpace(kind+" "+tag+" "+detail[sandbox.EventKeyReason]))
}

// start runs a sandbox from a snapshot, like a successful fork.
func (b *bench) start(id, tag string) {
	b.t.Helper()
	leave, err := b.Use(b.t.Context(), tag)
	b.must(err)
	defer leave()
	en, err := b.snapshots.Get(tag)
	b.must(err)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sandboxes[id] = snapshot.Parent{Tag: tag, ContentHash: en.ContentHash}
}

// stop ends a sandbox.
func (b *bench) stop(id string) {
	b.mu.Lock()
	from := b.sandboxes[id]
	delete(b.sandboxes, id)
	pinned := b.pinned[id] != ""
	b.mu.Unlock()
	if pinned {
		b.Unpin(id)
	}
	b.Left(from.ContentHash)
}

// begin takes a tag and writes all parts of a snapshot except its manifest.
func (b *bench) begin(tag string, forksWait bool) (*Draft, snapshot.Chain) {
	b.t.Helper()
	d, err := b.Begin(sandbox.SnapshotInfo{Tag: tag, CreatedAt: b.cfg.Now()}, forksWait)
	b.must(err)
	return d, b.fill(d)
}

// fill writes a snapshot's layer and files. It is called from goroutines.
func (b *bench) fill(d *Draft) snapshot.Chain {
	l, err := d.Base(layer.Memory, testShape.MemoryBytes())
	if err == nil {
		_, err = l.File().WriteAt([]byte("memory of "+d.Tag()), layer.ContentOffset)
	}
	var memory snapshot.Chain
	if err == nil {
		memory, err = d.Place(l)
	}
	for _, name := range []string{snapshot.StateFile, snapshot.DiskFile(0)} {
		var f *os.File
		if err == nil {
			f, err = d.File(name)
		}
		if err == nil {
			_, err = f.WriteString(name)
		}
	}
	if err != nil {
		b.t.Errorf("write %s: %v", d.Tag(), err)
	}
	return memory
}

var testShape = vmspec.Shape{MemoryMiB: 64, VCPUs: 1, Disks: 1}

// make makes a snapshot, on top of parent if it is not empty.
func (b *bench) make(tag, parent string) snapshot.Entry {
	b.t.Helper()
	return b.makeWith(tag, parent, func(*snapshot.Manifest) {})
}

func (b *bench) makeWith(tag, parent string, change func(*snapshot.Manifest)) snapshot.Entry {
	b.t.Helper()
	d, memory := b.begin(tag, false)
	defer d.End()
	m := manifest(memory)
	if parent != "" {
		en, err := b.snapshots.Get(parent)
		b.must(err)
		m.Descend(en.Manifest, en.ContentHash)
	}
	change(m)
	b.must(d.Commit(m))
	en, err := b.snapshots.Get(tag)
	b.must(err)
	return en
}

func manifest(memory snapshot.Chain) *snapshot.Manifest {
	return &snapshot.Manifest{
		CreatedUnixMS: 1700000000000, Shape: testShape, Memory: memory, State: snapshot.State{File: snapshot.StateFile},
		Disks: []snapshot.Disk{{File: snapshot.DiskFile(0), ReadOnly: true}}, Agent: snapshot.Agent{Version: "0.1"},
	}
}

// branched turns a manifest into one of a sandbox's branch.
func branched(sandbox string, transient bool) func(*snapshot.Manifest) {
	return func(m *snapshot.Manifest) {
		m.Branch = &snapshot.Branch{Sandbox: sandbox, Mode: "live", Transient: transient}
	}
}

// retiredFolders returns the number of folders of retired snapshots.
func (b *bench) retiredFolders() int {
	found, err := filepath.Glob(filepath.Join(b.dir, "snapshots", ".retired-*"))
	b.must(err)
	return len(found)
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s after a minute", what)
		}
	}
}

// wantError checks an error's kind and the required parts of its text.
func wantError(t testing.TB, err, kind error, texts ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("got error %v, want one of kind %q", err, kind)
		return
	}
	for _, s := range texts {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error lacks %q: %v", s, err)
		}
	}
}
