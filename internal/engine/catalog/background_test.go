package catalog

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// gate blocks background work until it is opened.
type gate chan struct{}

func (g gate) wait(ctx context.Context) error {
	select {
	case <-g:
		return ctx.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// verifies waits until a snapshot verifies. Until then the only accepted error is that its digests
// are not ready. It returns how often it got that error.
func (b *bench) verifies(tag string) (waited int) {
	b.t.Helper()
	eventually(b.t, "digests of "+tag, func() bool {
		info, err := b.Get(tag)
		b.must(err)
		r, err := b.Verify(b.t.Context(), tag)
		switch {
		case err == nil && r.OK() && r.Files > 0:
			return true
		case !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), "content digests are not ready yet"):
			b.t.Fatalf("verify %s: %+v, %v", tag, r, err)
		case info.DigestsReady:
			b.t.Fatalf("info of %s says that the digests are ready, verify says: %v", tag, err)
		}
		waited++
		return false
	})
	if info, err := b.Get(tag); err != nil || !info.DigestsReady {
		b.t.Errorf("info of %s says that the digests are not ready: %v", tag, err)
	}
	return waited
}

// After the error "not ready yet", the digests are computed.
func TestDigestsThatWereLeftOutAreMade(t *testing.T) {
	b := newBench(t)
	forks := make(gate)
	b.hasher.awaitForks = forks.wait
	b.make("many", "")
	b.run()
	eventually(t, "empty queue", func() bool { return len(b.hasher.tags) == 0 }) // the worker has taken it, and waits
	for len(b.hasher.tags) < cap(b.hasher.tags) {
		b.HashLater("none")
	}
	b.make("late", "")
	b.HashLater("late")
	close(forks)
	if b.verifies("late") == 0 {
		t.Error("too many wait: they were there all the time")
	}
	b.must(os.Remove(filepath.Join(b.snapshots.Dir("late"), snapshot.DigestFile)))
	if b.verifies("late") == 0 {
		t.Error("they could not be written: they were there all the time")
	}
}

func TestASnapshotThatIsBeingWrittenIsNotUnknown(t *testing.T) {
	b := newBench(t)
	d, _ := b.begin("w", true)
	_, err := b.Verify(t.Context(), "w")
	wantError(t, err, sandbox.ErrConflict, "snapshot w is being written")
	d.Fail(errors.New("the disk is gone"))
	d.End()
	_, err = b.Verify(t.Context(), "w")
	wantError(t, err, sandbox.ErrConflict, "could not be written: the disk is gone")
	_, err = b.Verify(t.Context(), "none")
	wantError(t, err, sandbox.ErrNotFound, "none")
}

// Layers are checked in turn, the longest unchecked first. Layers checked recently, also by the
// previous daemon, are not read again.
func TestTheScrubGoesOnWhereItWas(t *testing.T) {
	b := newBench(t)
	now := time.Now()
	b.cfg.Now = func() time.Time { return now }
	b.cfg.ScrubInterval = time.Hour
	b.reopen()
	for _, tag := range []string{"a", "b"} {
		b.make(tag, "")
		b.hasher.hash(t.Context(), tag)
	}
	now = now.Add(2 * time.Hour)
	first, due := b.scrubber.next()
	if !due {
		t.Fatal("nothing is due")
	}
	check := func(id layer.ID) {
		t.Helper()
		_, err := b.layers.Check(t.Context(), id, b.cfg.Now, b.scrubber.pause)
		b.must(err)
	}
	check(first)
	b.must(b.layers.SaveChecked())
	b.reopen()
	second, due := b.scrubber.next()
	if !due || second == first {
		t.Errorf("next is %s, %v, after %s", second, due, first)
	}
	check(second)
	if id, due := b.scrubber.next(); due {
		t.Errorf("%s is due again", id)
	}
}

// A check waits while a fork or a branch is running.
func TestTheScrubLetsForksGoFirst(t *testing.T) {
	for name, busy := range map[string]func(s *scrubber, g gate){
		"a fork":   func(s *scrubber, g gate) { s.awaitForks = g.wait },
		"a branch": func(s *scrubber, g gate) { s.awaitBranches = g.wait },
	} {
		b, g := newBench(t), make(gate)
		busy(b.scrubber, g)
		done := make(chan error, 1)
		go func() { done <- b.scrubber.pause(t.Context(), 0) }()
		select {
		case err := <-done:
			t.Errorf("%s: it did not wait, %v", name, err)
		case <-time.After(50 * time.Millisecond):
		}
		close(g)
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
