//go:build linux

package main

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/events"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Events have the labels of their object, and no text of them among the details.
func TestEventsHaveLabels(t *testing.T) {
	l := events.New(0, 10, time.Now)
	tell := telling(l)
	tell(sandbox.EventEnded, "sb-1", sandbox.Info{SnapshotTag: "py", Labels: map[string]string{"job": "7"}}.About())
	tell(sandbox.EventSnapshotDeleted, "py", sandbox.SnapshotInfo{Labels: map[string]string{"kept": ""}}.About())
	tell(sandbox.EventPool, "py", map[string]string{"size": "1"})
	var got []events.Event
	l.Close()
	_ = l.Follow(t.Context(), 0, func(e events.Event) error { got = append(got, e); return nil })
	if len(got) != 3 || got[0].Labels["job"] != "7" || len(got[1].Labels) != 1 || got[2].Labels != nil {
		t.Fatalf("got %+v", got)
	}
	for _, e := range got {
		if _, there := e.Detail[sandbox.EventKeyLabels]; there {
			t.Errorf("details %v", e.Detail)
		}
	}
}

func TestWhatTheEngineTellsBecomesAnEvent(t *testing.T) {
	l := events.New(0, 10, time.Now)
	tell := telling(l)
	tell(sandbox.EventReady, "sb-1", map[string]string{"snapshot": "py", "owner": "acme", "index": "1"})
	tell(sandbox.EventSnapshotCreated, "b", map[string]string{"sandbox": "sb-1", "principal": "ci"})
	tell(sandbox.EventPool, "py", nil)
	tell(sandbox.EventServiceCrashed, "sb-1", map[string]string{"snapshot": "py", "service": "web"})
	var got []events.Event
	enough := errors.New("enough")
	err := l.Follow(t.Context(), 0, func(e events.Event) error {
		if got = append(got, e); len(got) == 4 {
			return enough
		}
		return nil
	})
	if err != enough {
		t.Fatal(err)
	}
	if e := got[0]; e.Sandbox != "sb-1" || e.Snapshot != "py" || e.Owner != "acme" || len(e.Detail) != 1 || e.Detail["index"] != "1" {
		t.Errorf("got %+v", e)
	}
	if e := got[1]; e.Sandbox != "sb-1" || e.Snapshot != "b" || e.Principal != "ci" || len(e.Detail) != 0 {
		t.Errorf("got %+v", e)
	}
	if e := got[2]; e.Sandbox != "" || e.Snapshot != "py" {
		t.Errorf("got %+v", e)
	}
	if e := got[3]; e.Sandbox != "sb-1" || e.Snapshot != "py" || e.Detail["service"] != "web" {
		t.Errorf("got %+v", e)
	}
}

func TestAuditFlags(t *testing.T) {
	for name, o := range map[string]auditFlags{
		"no size": {"x", 0, 1}, "a negative size": {"x", -1, 1}, "more than a disk has": {"x", 1 << 40, 1},
		"no files": {"x", 1, 0},
	} {
		if o.complete() == nil {
			t.Errorf("%s: it will do", name)
		}
	}
	o := auditFlags{"x", 1, 1}
	if err := o.complete(); err != nil || !filepath.IsAbs(o.file) {
		t.Errorf("got %+v, %v", o, err)
	}
}
