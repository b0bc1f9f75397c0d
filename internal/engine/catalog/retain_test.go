package catalog

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/leaf/retention"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// rule sets labels of a snapshot.
func (b *bench) rule(tag string, set map[string]string) {
	b.t.Helper()
	_, err := b.SetLabels(tag, labels.Change{Set: set})
	b.must(err)
}

// pruned returns the due snapshots, each with the reason why it stays.
func (b *bench) pruned(req sandbox.PruneRequest) string {
	b.t.Helper()
	r, err := b.retention().Prune(b.t.Context(), req)
	b.must(err)
	var out []string
	for _, d := range r.Snapshots {
		out = append(out, strings.TrimSuffix(d.Tag+": "+d.Held, ": "))
	}
	return strings.Join(out, ", ")
}

func (b *bench) present() string {
	b.t.Helper()
	list, err := b.List(b.t.Context())
	b.must(err)
	var out []string
	for _, s := range list {
		out = append(out, s.Tag)
	}
	return strings.Join(out, " ")
}

var expired = map[string]string{retention.Expires: "2020-01-01T00:00:00Z"}

// Only free snapshots go. The report has the disk space, without shared layers.
func TestDueSnapshotsGo(t *testing.T) {
	b := newBench(t)
	for _, tag := range []string{"free", "used", "public", "pinned", "forked", "kept"} {
		b.make(tag, "")
		if tag != "kept" {
			b.rule(tag, expired)
		}
	}
	b.make("parent", "")
	b.make("child", "parent")
	b.rule("parent", expired)
	b.rule("pinned", map[string]string{retention.Pin: "true"})
	b.start("sb-1", "used")
	b.cfg.Published = func(tag, hash string) bool { return tag == "public" && hash != "" }
	b.Catalog.cfg = b.cfg
	leave, err := b.Use(t.Context(), "forked")
	b.must(err)
	const want = "forked: it is being forked, pushed or exported, free, parent, public: it is published, " +
		"used: sandboxes run from it"
	if got := b.pruned(sandbox.PruneRequest{DryRun: true}); got != want {
		t.Errorf("a dry run has %s\nwant %s", got, want)
	}
	if got := b.present(); got != "child forked free kept parent pinned public used" {
		t.Errorf("after the dry run: %s", got)
	}
	dry, err := b.retention().Prune(t.Context(), sandbox.PruneRequest{DryRun: true})
	b.must(err)
	if got := b.pruned(sandbox.PruneRequest{}); got != want {
		t.Errorf("removed %s\nwant %s", got, want)
	}
	leave()
	if got := b.present(); got != "child forked kept pinned public used" {
		t.Errorf("left: %s", got)
	}
	r, err := b.Collect(false)
	b.must(err)
	if r.Bytes == 0 || dry.Bytes < r.Bytes || dry.Bytes > r.Bytes+64<<10 { // the files of states and disks come on top
		t.Errorf("the dry run has %d bytes, and layers of %d bytes went", dry.Bytes, r.Bytes)
	}
	if _, err := b.snapshots.Get("child"); err != nil {
		t.Errorf("the child of a removed snapshot: %v", err)
	}
	if !slices.ContainsFunc(b.told, func(s string) bool { return strings.HasPrefix(s, "snapshot.expired free expired at") }) {
		t.Errorf("events: %q", b.told)
	}
}

func TestAPruneSeesItsOwnersSnapshots(t *testing.T) {
	b := newBench(t)
	b.make("a", "")
	b.rule("a", expired)
	if got := b.pruned(sandbox.PruneRequest{Sees: func(owner string) bool { return owner == "other" }}); got != "" {
		t.Errorf("another tenant's prune has %s", got)
	}
	if got := b.present(); got != "a" {
		t.Errorf("left: %s", got)
	}
}

// A clock that is ahead for less than retainAfter removes no snapshot.
func TestAClockThatJumps(t *testing.T) {
	b := newBench(t)
	b.make("a", "")
	b.rule("a", map[string]string{retention.Expires: "24h"})
	const day = 25 * time.Hour
	made := time.UnixMilli(1700000000000) // of each snapshot here
	looks := []struct {
		ahead, elapsed time.Duration
		want           string
	}{
		{day, 0, "a"}, {day, retainEvery, "a"}, {0, 2 * retainEvery, "a"}, {day, 3 * retainEvery, "a"},
		{day, 4 * retainEvery, "a"}, {day, 5 * retainEvery, ""},
	}
	due := waiting{}
	for i, l := range looks {
		b.Catalog.cfg.Now = func() time.Time { return made.Add(l.ahead) }
		due = b.retention().look(t.Context(), due, l.elapsed)
		if got := b.present(); got != l.want {
			t.Fatalf("look %d leaves %q, want %q", i, got, l.want)
		}
	}
}

// Between the look and the deletion a snapshot may be pinned, or its tag may name another snapshot.
func TestASnapshotThatIsNotDueAnyMore(t *testing.T) {
	b := newBench(t)
	old := b.make("a", "")
	b.rule("a", expired)
	b.rule("a", map[string]string{retention.Pin: "true"})
	if held := b.retention().removeDue(t.Context(), "a", old.ContentHash, ""); !strings.Contains(held, "not due any more") {
		t.Errorf("pinned: %q", held)
	}
	err := b.Delete("a", sandbox.DeleteOptions{})
	if err == nil || !strings.Contains(err.Error(), "pinned") {
		t.Errorf("delete a pinned snapshot: %v", err)
	}
	b.must(b.Delete("a", sandbox.DeleteOptions{Force: true}))
	b.make("a", "")
	b.rule("a", expired)
	if held := b.retention().removeDue(t.Context(), "a", "sha256:other", ""); !strings.Contains(held, "not due any more") {
		t.Errorf("another snapshot of the tag: %q", held)
	}
	if got := b.present(); got != "a" {
		t.Errorf("left: %s", got)
	}
}

// After an error at any step the snapshot is whole or gone, and the next prune removes it.
func TestARemovalThatFails(t *testing.T) {
	for _, step := range []string{"delete.rename", "delete.sync"} {
		b := newBench(t)
		b.make("a", "")
		b.rule("a", expired)
		stop := failpoint.Set(func(s failpoint.Step) error {
			if strings.HasSuffix(string(s), step) {
				return unix.EIO
			}
			return nil
		})
		if got := b.pruned(sandbox.PruneRequest{}); !strings.Contains(got, "input/output error") {
			t.Errorf("%s: the report has %s", step, got)
		}
		stop()
		b.pruned(sandbox.PruneRequest{})
		if got := b.present(); got != "" {
			t.Errorf("%s: left %s", step, got)
		}
	}
}

func (b *bench) retention() Retention { return Retention{b.Catalog} }

// looks lets the background work look at these times, each with a jump of the wall clock.
func (b *bench) looks(made time.Time, ahead ...time.Duration) {
	b.t.Helper()
	due := waiting{}
	for i, jump := range ahead {
		b.Catalog.cfg.Now = func() time.Time { return made.Add(jump) }
		due = b.retention().look(b.t.Context(), due, time.Duration(i)*retainEvery)
	}
}

// Each removal in the background is an event and an act, with the owner, the tag and the rule. A look that removes no
// snapshot is neither.
func TestARemovalInTheBackgroundIsReported(t *testing.T) {
	b := newBench(t)
	b.makeWith("a", "", func(m *snapshot.Manifest) { m.Owner = "acme" })
	b.make("pinned", "")
	b.make("used", "")
	b.make("public", "")
	for _, tag := range []string{"a", "pinned", "used", "public"} {
		b.rule(tag, map[string]string{retention.Expires: "24h"})
	}
	b.rule("pinned", map[string]string{retention.Pin: "true"})
	b.start("sb-1", "used")
	b.cfg.Published = func(tag, _ string) bool { return tag == "public" }
	b.Catalog.cfg = b.cfg
	made := time.UnixMilli(1700000000000) // of each snapshot here
	b.looks(made, 0, 25*time.Hour, 25*time.Hour)
	if len(b.acts) != 0 {
		t.Fatalf("acts before a minute: %+v", b.acts)
	}
	b.looks(made, 25*time.Hour, 25*time.Hour, 25*time.Hour, 25*time.Hour)
	if got := b.present(); got != "pinned public used" {
		t.Errorf("left: %s", got)
	}
	if len(b.acts) != 1 {
		t.Fatalf("acts: %+v", b.acts)
	}
	a := b.acts[0]
	if a.By != sandbox.ByRetention || a.Action != sandbox.ActDelete || a.Of.SnapshotTag != "a" || a.Of.Owner != "acme" ||
		!strings.HasPrefix(a.Why, "expired at 2023-11-15") || a.Err != nil {
		t.Errorf("the act is %+v", a)
	}
	for _, detail := range []string{"owner=acme", "principal=retention"} {
		if !slices.ContainsFunc(b.details, func(s string) bool {
			return strings.HasPrefix(s, "snapshot.expired a ") && strings.Contains(s, detail)
		}) {
			t.Errorf("no event has %s: %q", detail, b.details)
		}
	}
}

// The minute of a due snapshot begins again after a restart, so that a daemon with a wrong clock at its start removes
// no snapshot.
func TestARestartBeginsTheMinuteAgain(t *testing.T) {
	b := newBench(t)
	b.make("a", "")
	b.rule("a", map[string]string{retention.Expires: "24h"})
	made := time.UnixMilli(1700000000000)
	const late = 25 * time.Hour
	b.looks(made, late, late)
	b.reopen()
	b.looks(made, late, late)
	if got := b.present(); got != "a" {
		t.Fatalf("left: %s", got)
	}
	b.looks(made, late, -late, 0, late, late) // the clock goes back, and the minute begins again
	if got := b.present(); got != "a" {
		t.Fatalf("left after a clock that went back: %q", got)
	}
	b.looks(made, late, late, late)
	if got := b.present(); got != "" {
		t.Errorf("left: %s", got)
	}
}
