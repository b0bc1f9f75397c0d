package catalog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Every event in every state: only the legal transitions are possible.
func TestMovesOfATag(t *testing.T) {
	states := []state{idle, writing, failed, deleting}
	events := map[string]event{
		"begin": begin, "end": end, "fail": fail, "forget": forget, "remove": remove, "removed": removed,
	}
	legal := map[string]state{
		"idle begin":            writing,
		"idle remove":           deleting,
		"being written end":     idle,
		"being written fail":    failed,
		"failed begin":          writing,
		"failed forget":         idle,
		"being deleted removed": idle,
	}
	for _, from := range states {
		for name, ev := range events {
			c := newTagTable(nil)
			c.entries["x"] = &entry{state: from, users: 1}
			_, err := c.moveLocked("x", ev)
			is := c.entries["x"].state
			if to, ok := legal[fmt.Sprint(from, " ", name)]; ok {
				if err != nil || is != to {
					t.Errorf("%s when %s: %s, %v, want %s", name, from, is, err, to)
				}
				continue
			}
			wantError(t, err, sandbox.ErrConflict, "snapshot x is "+from.String())
			if is != from {
				t.Errorf("%s when %s was refused, and the tag is %s", name, from, is)
			}
		}
	}
}

// The entry of an idle tag without users is removed. Waiters continue, and a count of users
// survives every transition.
func TestAnEntryLivesAsLongAsItSaysSomething(t *testing.T) {
	c := newTagTable(nil)
	e, err := c.moveLocked("x", begin)
	if err != nil {
		t.Fatal(err)
	}
	settled := e.settled
	e.users = 2
	if _, err := c.moveLocked("x", end); err != nil {
		t.Fatal(err)
	}
	select {
	case <-settled:
	default:
		t.Error("whoever waits for the end of the writing goes on waiting")
	}
	for _, ev := range []event{remove, removed} {
		if e, err := c.moveLocked("x", ev); err != nil || e.users != 2 {
			t.Errorf("%+v, %v", e, err)
		}
	}
	c.entries["x"].users = 0
	if c.pruneLocked("x"); len(c.entries) != 0 {
		t.Errorf("left: %v", c.entries)
	}
}

// model is the expected state of a tag, compared with the catalog in a random walk.
type model struct {
	draft     *Draft
	memory    snapshot.Chain
	forksWait bool
	stored    bool
	failed    bool
	leaves    []func()
}

// After any order of operations, a tag has the expected state, in memory and on disk.
func TestRandomWalk(t *testing.T) {
	seeds := []uint64{1, 2, 3}
	if text := os.Getenv("FORKD_WALK_SEED"); text != "" {
		var seed uint64
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := &walk{bench: newBench(t), r: rand.New(rand.NewPCG(seed, 8)), tags: map[string]*model{}}
			for range 200 {
				tag := []string{"a", "b", "c"}[w.r.IntN(3)]
				if w.tags[tag] == nil {
					w.tags[tag] = &model{}
				}
				w.step(tag, w.tags[tag])
				w.check(tag, w.tags[tag])
			}
			w.finish()
		})
	}
}

type walk struct {
	*bench
	r    *rand.Rand
	tags map[string]*model
	next int // numbers the sandboxes
}

func (w *walk) step(tag string, m *model) {
	switch w.r.IntN(9) {
	case 0, 1:
		w.stepBegin(tag, m)
	case 2, 3:
		w.stepEnd(m)
	case 4:
		w.stepUse(tag, m)
	case 5:
		if n := len(m.leaves); n > 0 {
			m.leaves[n-1]()
			m.leaves = m.leaves[:n-1]
		}
	case 6:
		w.stepDelete(tag, m, w.r.IntN(2) == 0)
	case 7:
		if m.stored && m.draft == nil && len(w.sandboxes) < 4 {
			w.next++
			w.start(fmt.Sprint("sb-", w.next), tag)
		}
	case 8:
		for id := range w.sandboxes {
			w.bench.stop(id)
			break
		}
		w.collector.collect()
	}
}

func (w *walk) stepBegin(tag string, m *model) {
	wait := w.r.IntN(2) == 0
	d, err := w.Begin(sandbox.SnapshotInfo{Tag: tag}, wait)
	if m.stored || m.draft != nil {
		wantError(w.t, err, sandbox.ErrConflict)
		return
	}
	w.must(err)
	m.draft, m.memory, m.forksWait, m.failed = d, w.fill(d), wait, false
}

func (w *walk) stepEnd(m *model) {
	d := m.draft
	if d == nil {
		return
	}
	switch w.r.IntN(3) {
	case 0:
		w.must(d.Commit(manifest(m.memory)))
		m.stored = true
	case 1:
		d.Fail(errors.New("the reason"))
		m.failed = true
	}
	d.End()
	d.End() // has no effect
	m.draft = nil
}

func (w *walk) stepUse(tag string, m *model) {
	if m.draft != nil && m.forksWait {
		return // it would wait
	}
	leave, err := w.Use(w.t.Context(), tag)
	if m.draft != nil || m.failed {
		wantError(w.t, err, sandbox.ErrConflict, tag)
		return
	}
	w.must(err) // also for a missing tag: opening it will fail
	m.leaves = append(m.leaves, leave)
}

func (w *walk) stepDelete(tag string, m *model, force bool) {
	en, _ := w.snapshots.Get(tag)
	using := w.Using(tag, en.ContentHash)
	err := w.Delete(tag, sandbox.DeleteOptions{Force: force})
	switch {
	case m.failed:
		w.must(err)
		m.failed = false
	case m.draft != nil:
		wantError(w.t, err, sandbox.ErrConflict, "is being written")
	case !m.stored:
		wantError(w.t, err, sandbox.ErrNotFound, tag)
	case !force && len(using)+len(m.leaves) > 0:
		wantError(w.t, err, sandbox.ErrConflict, "in use by")
	default:
		w.must(err)
		m.stored = false
	}
}

// check compares the list and the in-memory state with the model.
func (w *walk) check(tag string, m *model) {
	w.t.Helper()
	want, e := sandbox.SnapshotStatus(""), w.Catalog.tags.get(tag)
	state := idle
	switch {
	case m.draft != nil:
		want, state = sandbox.SnapshotWriting, writing
	case m.failed:
		want, state = sandbox.SnapshotFailed, failed
	case m.stored:
		want = sandbox.SnapshotReady
	}
	info, err := w.Get(tag)
	if want == "" {
		wantError(w.t, err, sandbox.ErrNotFound)
	} else if err != nil || info.Status != want {
		w.t.Fatalf("%s is %s, %v, want %s", tag, info.Status, err, want)
	}
	if e.state != state || e.users != len(m.leaves) {
		w.t.Fatalf("%s is %s with %d users, want %s with %d", tag, e.state, e.users, state, len(m.leaves))
	}
	list, err := w.List(w.t.Context())
	w.must(err)
	i := slices.IndexFunc(list, func(i sandbox.SnapshotInfo) bool { return i.Tag == tag })
	if listed := i >= 0; listed != (want != "") || listed && list[i].Status != want {
		w.t.Fatalf("%s is not listed as %q: %+v", tag, want, list)
	}
}

// finish ends all operations. No state may be left after it.
func (w *walk) finish() {
	w.t.Helper()
	for tag, m := range w.tags {
		for _, leave := range m.leaves {
			leave()
		}
		if m.draft != nil {
			m.draft.End()
		}
		if m.stored || m.failed {
			w.must(w.Delete(tag, sandbox.DeleteOptions{Force: true}))
		}
	}
	for id := range w.sandboxes {
		w.bench.stop(id)
	}
	w.nothingLeft()
}

func (b *bench) nothingLeft() {
	b.t.Helper()
	b.collector.collect()
	pins, err := b.layers.Pins()
	b.must(err)
	ids, err := b.layers.IDs()
	b.must(err)
	if len(b.tags.entries)+len(b.tags.retired)+b.retiredFolders()+len(pins)+len(ids) > 0 {
		b.t.Errorf("left: tags %v, retired %v (%d folders), pins %v, layers %v",
			b.tags.entries, b.tags.retired, b.retiredFolders(), pins, ids)
	}
}

// Concurrent forks, deletions and writers of the same tags. No used snapshot is deleted, a sandbox
// always finds its base, and no files are left at the end.
func TestManyAtOnce(t *testing.T) {
	b := newBench(t)
	b.run()
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() { b.churn(i) })
	}
	all.Wait()
	for _, tag := range []string{"a", "b"} {
		if err := b.Delete(tag, sandbox.DeleteOptions{}); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
			t.Error(err)
		}
	}
	eventually(t, "empty store", func() bool {
		b.tags.mu.Lock()
		left := len(b.tags.entries) + len(b.tags.retired)
		b.tags.mu.Unlock()
		ids, err := b.layers.IDs()
		return err == nil && left+len(ids) == 0
	})
	b.nothingLeft()
}

func (b *bench) churn(i int) {
	r := rand.New(rand.NewPCG(uint64(i), 4))
	for n := range 60 {
		tag := []string{"a", "b"}[r.IntN(2)]
		switch r.IntN(4) {
		case 0, 1:
			b.runOnce(fmt.Sprintf("sb-%d-%d", i, n), tag)
		case 2:
			d, err := b.Begin(sandbox.SnapshotInfo{Tag: tag}, true)
			if err != nil {
				wantError(b.t, err, sandbox.ErrConflict)
				continue
			}
			if err := d.Commit(manifest(b.fill(d))); err != nil {
				b.t.Error(err)
			}
			d.End()
		case 3:
			err := b.Delete(tag, sandbox.DeleteOptions{Force: r.IntN(2) == 0})
			if err != nil && !errors.Is(err, sandbox.ErrConflict) && !errors.Is(err, sandbox.ErrNotFound) {
				b.t.Error(err)
			}
		}
	}
}

// runOnce forks a sandbox, finds its base, and ends it.
func (b *bench) runOnce(id, tag string) {
	leave, err := b.Use(b.t.Context(), tag)
	if err != nil {
		if !errors.Is(err, sandbox.ErrConflict) && !errors.Is(err, sandbox.ErrNotFound) {
			b.t.Error(err)
		}
		return
	}
	files, err := b.snapshots.Open(tag)
	if err != nil {
		leave()
		if !errors.Is(err, storeerr.ErrNotFound) {
			b.t.Error(err)
		}
		return
	}
	hash := files.ContentHash
	files.Close()
	b.mu.Lock()
	b.sandboxes[id] = snapshot.Parent{Tag: tag, ContentHash: hash}
	b.mu.Unlock()
	leave()
	for {
		files, err := b.OpenRetired(hash)
		if err != nil {
			if files, err = b.snapshots.Open(tag); err == nil && files.ContentHash != hash {
				files.Close()
				err = sandbox.ErrConflict
			}
		}
		if err == nil {
			files.Close()
			break
		}
		if !b.AwaitRetired(b.t.Context(), tag, hash) {
			if files, err := b.OpenRetired(hash); err == nil { // it was retired between the two lookups
				files.Close()
				break
			}
			b.t.Errorf("sandbox %s over %s: %v", id, tag, err)
			break
		}
	}
	b.stop(id)
}
