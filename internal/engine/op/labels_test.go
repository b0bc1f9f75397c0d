package op_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/labels"
)

type set = map[string]string

// Labels of running and paused sandboxes and of snapshots outlive the daemon.
func TestLabelsOutliveTheDaemon(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	if _, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "tiny", Labels: set{"of": "a"}}, nil); err != nil {
		t.Fatal(err)
	}
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 2, Labels: set{"job": "7"}})
	if err != nil {
		t.Fatal(err)
	}
	running, paused := r.Children[0].Info.ID, r.Children[1].Info.ID
	if _, err := e.Pause(t.Context(), paused, sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{running, paused} {
		if _, err := e.LabelSandbox(t.Context(), id, labels.Change{Set: set{"id": id}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.LabelSnapshot(t.Context(), "a", labels.Change{Set: set{"kept": ""}}); err != nil {
		t.Fatal(err)
	}
	h.Close(e)
	e = h.Open()
	for _, id := range []string{running, paused} {
		if got := enginefake.MustGet(t, e, id); !maps.Equal(got.Labels, set{"job": "7", "id": id}) {
			t.Errorf("%s (%s) has %v", id, got.Status, got.Labels)
		}
	}
	if s, err := e.SnapshotInfo(t.Context(), "a"); err != nil || !maps.Equal(s.Labels, set{"of": "a", "kept": ""}) {
		t.Errorf("the snapshot has %v, %v", s.Labels, err)
	}
	for _, s := range mustList(e, t) {
		if s.Tag != "a" && s.Labels != nil {
			t.Errorf("the snapshot of the pause has %v", s.Labels)
		}
	}
	if i, err := e.Resume(t.Context(), paused); err != nil || i.Labels["job"] != "7" {
		t.Errorf("resumed: %v, %v", i.Labels, err)
	}
}

func mustList(e *engine.Engine, t *testing.T) []sandbox.SnapshotInfo {
	t.Helper()
	all, err := e.ListSnapshots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A journal of a daemon before labels is read, and one with labels is read by such a daemon, which ignores the
// field.
func TestAJournalWithoutLabels(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sb := h.Fork(e, "a", 1)[0]
	journals, err := filepath.Glob(filepath.Join(h.Cfg.RunDir, "vm", "*", "sandbox.json"))
	if err != nil || len(journals) != 1 {
		t.Fatal(journals, err)
	}
	if b, err := os.ReadFile(journals[0]); err != nil || strings.Contains(string(b), "Labels") {
		t.Fatalf("without labels the journal is %s, %v", b, err)
	}
	h.Close(e)
	e = h.Open()
	if got := enginefake.MustGet(t, e, sb.ID); got.Labels != nil || got.Status != sandbox.StatusRunning {
		t.Errorf("adopted: %+v", got)
	}
	if _, err := e.LabelSandbox(t.Context(), sb.ID, labels.Change{Set: set{"a": "b"}}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(journals[0])
	var old struct { // the fields of the earlier format that decide about a sandbox
		Version int
		Info    struct{ ID, SnapshotTag, Status string }
	}
	if err == nil {
		err = json.Unmarshal(b, &old)
	}
	if err != nil || old.Version != vmproc.JournalVersion || old.Info.ID != sb.ID || old.Info.Status != "running" {
		t.Errorf("an earlier daemon reads %+v, %v", old, err)
	}
}

// On a full disk labels are refused, and the old ones stay.
func TestLabelsOnAFullDisk(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	stop := failpoint.Set(func(s failpoint.Step) error {
		if strings.HasSuffix(string(s), "labels.write") {
			return unix.ENOSPC
		}
		return nil
	})
	defer stop()
	_, err := e.LabelSnapshot(t.Context(), "a", labels.Change{Set: set{"a": ""}})
	enginefake.WantError(t, err, sandbox.ErrNoSpace, "label")
	_, err = e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "b", Image: "tiny", Labels: set{"a": ""}}, nil)
	enginefake.WantError(t, err, sandbox.ErrNoSpace, "label")
	if got := h.Stored(); got != "a" {
		t.Errorf("stored: %s", got)
	}
}

// A guest's children have the labels of the guest's sandbox at that time.
func TestLabelsOfAGuestsChildren(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	if _, err := g.E.LabelSandbox(t.Context(), g.Root.ID, labels.Change{Set: set{"job": "7"}}); err != nil {
		t.Fatal(err)
	}
	for _, id := range g.Forked(g.Root.ID, 2) {
		if got := enginefake.MustGet(t, g.E, id); !maps.Equal(got.Labels, set{"job": "7"}) {
			t.Errorf("%s has %v", id, got.Labels)
		}
	}
}
