package keep

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// fake has sandboxes that print a fixed text.
type fake struct {
	mu      sync.Mutex
	all     []sandbox.Info
	prints  map[string]sandbox.ExecResult
	fails   map[string]error
	locked  string // cannot be ended
	killed  []string
	scoring func(id string) // called by each score
	snaps   []sandbox.SnapshotInfo
}

func newFake(scores ...string) *fake {
	f := &fake{prints: map[string]sandbox.ExecResult{}, fails: map[string]error{}}
	for i, s := range scores {
		id := fmt.Sprintf("sb-00000001-%04d", i+1)
		f.all = append(f.all, sandbox.Info{ID: id, SnapshotTag: "py", SnapshotHash: "h", Index: i + 1, Status: sandbox.StatusRunning})
		f.prints[id] = sandbox.ExecResult{Stdout: []byte(s)}
	}
	f.snaps = []sandbox.SnapshotInfo{{Tag: "py", ContentHash: "h"}}
	return f
}

func (f *fake) ids() (ids []string) {
	for _, i := range f.List() {
		ids = append(ids, i.ID)
	}
	return ids
}

func (f *fake) List() []sandbox.Info {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

func (f *fake) Get(id string) (sandbox.Info, error) {
	for _, i := range f.List() {
		if i.ID == id {
			return i, nil
		}
	}
	return sandbox.Info{}, sandbox.Errorf(sandbox.ErrNotFound, "", "sandbox %s not found", id)
}

func (f *fake) Kill(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if id == f.locked {
		return errors.New("it is stuck")
	}
	if _, err := f.Get(id); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.killed = append(f.killed, id)
	f.all = slices.DeleteFunc(f.all, func(i sandbox.Info) bool { return i.ID == id })
	return nil
}

func (f *fake) Exec(ctx context.Context, id string, req sandbox.ExecRequest) (sandbox.ExecResult, error) {
	if f.scoring != nil {
		f.scoring(id)
	}
	if _, err := f.Get(id); err != nil {
		return sandbox.ExecResult{}, err
	}
	res := f.prints[id]
	res.Stdout = res.Stdout[:req.Keep(len(res.Stdout))]
	return res, errors.Join(f.fails[id], ctx.Err())
}

func (f *fake) DialAgent(context.Context, string) (net.Conn, error) {
	return nil, errors.New("no agent")
}

func (f *fake) SnapshotBrief(tag string) (sandbox.SnapshotBrief, error) {
	for _, s := range f.snaps {
		if s.Tag == tag {
			return sandbox.SnapshotBrief{Tag: s.Tag, ContentHash: s.ContentHash}, nil
		}
	}
	return sandbox.SnapshotBrief{}, sandbox.Errorf(sandbox.ErrNotFound, "", "no snapshot")
}

func (f *fake) ListSnapshots(context.Context) ([]sandbox.SnapshotInfo, error) {
	return slices.Clone(f.snaps), nil
}

func (f *fake) run(t *testing.T, req Request) string {
	t.Helper()
	req.Args = []string{"score"}
	if req.Of == "" {
		req.IDs = f.ids()
	}
	all, err := Run(t.Context(), f, req)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, s := range all {
		words = append(words, s.ID[len(s.ID)-1:]+" "+string(s.Outcome))
	}
	return strings.Join(words, ", ")
}

func TestTheBestAreKept(t *testing.T) {
	for name, c := range map[string]struct {
		scores []string
		req    Request
		want   string
	}{
		"the highest":                         {[]string{"1", "3", "2"}, Request{Best: 2}, "2 kept, 3 kept, 1 ended"},
		"the lowest":                          {[]string{"1", "3", "2"}, Request{Best: 1, Lowest: true}, "1 kept, 3 ended, 2 ended"},
		"equal ones by order":                 {[]string{"7", "7", "7.0"}, Request{Best: 2}, "1 kept, 2 kept, 3 ended"},
		"zero below zero":                     {[]string{"-2", "0", "-1e-9\r\nmore"}, Request{Best: 1}, "2 kept, 3 ended, 1 ended"},
		"one without a score":                 {[]string{"", "2", "1"}, Request{Best: 1}, "2 kept, 3 ended, 1 kept"},
		"one without a score is to end":       {[]string{"x", "2", "1"}, Request{Best: 2, EndUnscored: true}, "2 kept, 3 kept, 1 ended"},
		"none with a score":                   {[]string{"x", "NaN", "+Inf"}, Request{Best: 1, EndUnscored: true}, "1 kept, 2 kept, 3 kept"},
		"an empty first line":                 {[]string{"\n5", "1"}, Request{Best: 1}, "2 kept, 1 kept"},
		"more than there are":                 {[]string{"1", "2"}, Request{Best: 5}, "2 kept, 1 kept"},
		"output that is cut after the number": {[]string{"4\n" + strings.Repeat("x", 1<<20), "1"}, Request{Best: 1}, "1 kept, 2 ended"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(c.scores...)
			dry := c.req
			dry.DryRun = true
			if got := f.run(t, dry); got != c.want || len(f.killed) > 0 {
				t.Errorf("a dry run: %s, and ended %q; want %s", got, f.killed, c.want)
			}
			if got := f.run(t, c.req); got != c.want || len(f.killed) != strings.Count(c.want, "ended") {
				t.Errorf("%s, and ended %q; want %s", got, f.killed, c.want)
			}
		})
	}
}

func TestWhatHasNoScore(t *testing.T) {
	f := newFake("1", "2", "3", "4", "5")
	ids := f.ids()
	f.fails[ids[0]] = sandbox.Errorf(sandbox.ErrGuestGone, "", "the guest has ended")
	f.prints[ids[1]] = sandbox.ExecResult{ExitCode: 1, Stdout: []byte("9"), Stderr: []byte("a\nno \x1b[2J model\n")}
	f.prints[ids[2]] = sandbox.ExecResult{TimedOut: true, ExitCode: 124, Stdout: []byte("9")}
	f.prints[ids[3]] = sandbox.ExecResult{KilledBy: "out of memory", ExitCode: 137}
	all, err := Run(t.Context(), f, Request{IDs: ids, Args: []string{"x"}, Best: 1, Timeout: time.Second})
	if err != nil || len(f.killed) > 0 {
		t.Fatal(err, f.killed)
	}
	want := []string{"", "the guest has ended", `exit code 1: no \x1b[2J model`, "it took longer than 1s", "out of memory"}
	for i, s := range all {
		if s.Problem != want[i] || s.Scored != (i == 0) {
			t.Errorf("entry %d is %+v, want %q", i, s, want[i])
		}
	}
}

// A sandbox that another request ends meanwhile is gone, before its score and after it.
func TestSandboxesThatEndMeanwhile(t *testing.T) {
	f := newFake("1", "2", "3", "4")
	ids := f.ids()
	var once sync.Once
	f.scoring = func(id string) {
		if id == ids[1] {
			once.Do(func() { _ = f.Kill(t.Context(), id) })
		}
	}
	f.locked = ids[0]
	if got := f.run(t, Request{Best: 1}); got != "4 kept, 3 ended, 1 kept, 2 gone" {
		t.Error(got)
	}
}

// If the caller leaves before all are scored, none is ended. After the decision all losers are.
func TestACallerThatLeaves(t *testing.T) {
	f := newFake("1", "2", "3")
	ctx, cancel := context.WithCancel(t.Context())
	f.scoring = func(string) { cancel() }
	_, err := Run(ctx, f, Request{IDs: f.ids(), Args: []string{"x"}, Best: 1})
	if !errors.Is(err, context.Canceled) || len(f.killed) > 0 {
		t.Errorf("%v, ended %q", err, f.killed)
	}
	all := []Entry{{ID: f.ids()[0], Outcome: Ended}}
	end(ctx, f, all)
	if all[0].Outcome != Ended || len(f.killed) != 1 {
		t.Errorf("%+v, ended %q", all, f.killed)
	}
}

func TestChildrenOf(t *testing.T) {
	f := newFake("1", "2", "3", "4", "5")
	f.snaps = append(f.snaps, sandbox.SnapshotInfo{Tag: "mid", ContentHash: "m", BranchedFrom: f.all[0].ID},
		sandbox.SnapshotInfo{Tag: "lone", ContentHash: "l"})
	f.all[1].SnapshotTag, f.all[1].SnapshotHash = "mid", "m"
	f.all[2].Kin.Parent = f.all[0].ID
	f.all[3].SnapshotHash = "another snapshot that had the tag"
	f.all[4].Status = sandbox.StatusFailed
	for of, want := range map[string]string{"py": "3 kept, 1 kept", "mid": "2 kept", f.all[0].ID: "3 kept, 2 kept",
		sandbox.DNSID(f.all[0].ID): "3 kept, 2 kept"} {
		if got := f.run(t, Request{Of: of, Best: 9, DryRun: true}); got != want {
			t.Errorf("of %s: %s, want %s", of, got, want)
		}
	}
	for _, of := range []string{"lone", f.all[3].ID, "none", "../x"} {
		_, err := Run(t.Context(), f, Request{Of: of, Args: []string{"x"}, Best: 1})
		if !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("of %s: %v", of, err)
		}
	}
}

func TestBadRequests(t *testing.T) {
	f := newFake("1")
	ids, args := f.ids(), []string{"x"}
	for _, r := range []Request{{}, {IDs: ids, Args: args}, {IDs: ids, Best: 1}, {Args: args, Best: 1},
		{IDs: ids, Of: "py", Args: args, Best: 1}, {IDs: ids, Args: args, File: "/f", Best: 1},
		{IDs: ids, Args: []string{""}, Best: 1}, {IDs: slices.Repeat(ids, MaxSandboxes+1), Args: args, Best: 1}} {
		if _, err := Run(t.Context(), f, r); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := Run(t.Context(), f, Request{IDs: append(ids, "sb-none"), Args: args, Best: 1}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Error(err)
	}
}
