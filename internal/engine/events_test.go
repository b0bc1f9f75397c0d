package engine

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// told records an engine's events.
type told struct {
	mu  sync.Mutex
	all []string
}

// listen collects an engine's events, as "kind id", or "kind id: reason" if they have a reason.
func (h *host) listen() *told {
	s := &told{}
	h.cfg.Events = func(kind, id string, d map[string]string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r := d[sandbox.EventKeyReason]; r != "" {
			id += ": " + r
		}
		s.all = append(s.all, kind+" "+id)
	}
	return s
}

// of returns the kinds of events about an object, in order.
func (s *told) of(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kinds []string
	for _, e := range s.all {
		if kind, of, _ := strings.Cut(e, " "); of == id || strings.HasPrefix(of, id+": ") {
			kinds = append(kinds, kind)
		}
	}
	return strings.Join(kinds, " ")
}

func (s *told) want(t *testing.T, id, kinds string) {
	t.Helper()
	eventually(t, "event of "+id+" after "+s.of(id), func() bool { return s.of(id) == kinds })
}

func TestWhatHappensIsTold(t *testing.T) {
	h := newHost(t)
	s := h.listen()
	e := h.open()
	h.snapshot(e, "p")
	s.want(t, "p", sandbox.EventSnapshotCreated)
	if err := e.SetPool(t.Context(), "p", 1); err != nil {
		t.Fatal(err)
	}
	s.want(t, "p", "snapshot.created pool.changed")
	sb := h.fork(e, "p", 1)[0].ID
	s.want(t, sb, "sandbox.created sandbox.ready")
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb, Tag: "b"}); err != nil {
		t.Fatal(err)
	}
	s.want(t, sb, "sandbox.created sandbox.ready sandbox.branched")
	s.want(t, "b", sandbox.EventSnapshotCreated)
	if _, err := e.Rollback(t.Context(), sb, "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.SetNetwork(t.Context(), sb, sandbox.NetworkRequest{Policy: netpolicy.Spec{Default: netpolicy.Deny}}); err != nil {
		t.Fatal(err)
	}
	if err := e.Kill(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	s.want(t, sb, "sandbox.created sandbox.ready sandbox.branched sandbox.rolled_back sandbox.network sandbox.ended")
	if err := e.DeleteSnapshot(t.Context(), "b", sandbox.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.want(t, "b", "snapshot.created snapshot.deleted")
}

func TestWhatFailsIsTold(t *testing.T) {
	h := newHost(t)
	s := h.listen()
	e := h.open()
	if _, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "none", Image: "nope"}, nil); err == nil {
		t.Fatal("it was created")
	}
	s.want(t, "none", "") // it did not begin
	h.snapshot(e, "p")
	sb := h.fork(e, "p", 1)[0].ID
	h.fault("captured-fail", 1)
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb, Tag: "b"}); err == nil {
		t.Fatal("it was branched")
	}
	s.want(t, "b", sandbox.EventSnapshotFailed)
	h.fault("restore-fail", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "p", N: 1})
	if err != nil || r.Children[0].Err == nil {
		t.Fatalf("got %+v, %v", r, err)
	}
	h.change(e, func(h *host) { h.available = 0 })
	if _, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "p", N: 5}); err == nil {
		t.Fatal("they were admitted")
	}
	s.want(t, "p", "snapshot.created admission.refused")
	s.mu.Lock()
	failed := slices.DeleteFunc(slices.Clone(s.all), func(e string) bool { return !strings.HasPrefix(e, "sandbox.failed") })
	s.mu.Unlock()
	if len(failed) != 1 { // the one whose restore failed; refused children were never started
		t.Errorf("got %q", failed)
	}
}

// The end of a VM is reported with its reason, by this daemon or by the next.
func TestASandboxesEndIsTold(t *testing.T) {
	h := newHost(t)
	s := h.listen()
	e := h.open()
	h.snapshot(e, "p")
	all := h.fork(e, "p", 2)
	killProcess(t, all[0].PID)
	s.want(t, all[0].ID, "sandbox.created sandbox.ready sandbox.failed")
	h.close(e)
	killProcess(t, all[1].PID)
	h.open()
	s.want(t, all[1].ID, "sandbox.created sandbox.ready sandbox.failed")
}

func killProcess(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "end of the process", processGone(pid))
}
