package guestfork_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

func exit(g *enginefake.GuestBench, id string, code, size int) forkwire.Answer {
	g.T.Helper()
	a, err := g.TryCall(id, enginefake.Call{Req: forkwire.Request{Op: forkwire.OpExit, Code: code}, Size: size})
	if err != nil && !strings.Contains(err.Error(), vmproc.ErrNoVM.Error()) { // it ends before its Eval does
		g.T.Fatal(err)
	}
	return a
}

func wait(g *enginefake.GuestBench, id string, ids ...string) forkwire.Answer {
	g.T.Helper()
	return g.Call(id, enginefake.Call{Req: forkwire.Request{Op: forkwire.OpWait, IDs: ids, TimeoutMS: 20000}})
}

func refused(g *enginefake.GuestBench, a forkwire.Answer, code forkwire.Code, words string) {
	g.T.Helper()
	if a.Error == nil || a.Error.Code != code || !strings.Contains(a.Error.Message, words) {
		g.T.Errorf("got %+v, %v, want %s: %s", a, a.Error, code, words)
	}
}

func listed(g *enginefake.GuestBench, id string) bool {
	_, err := g.E.Get(id)
	return err == nil
}

func TestGuestForksExitsAndWaits(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	ids := g.Forked(g.Root.ID, 3)
	for i, id := range ids {
		info, err := g.E.Get(id)
		k := info.Kin
		if err != nil || info.Index != i+1 || k.Parent != g.Root.ID || k.Root != g.Root.ID || k.Depth != 1 || !k.MayFork {
			t.Errorf("child %d: %+v, %v", i+1, info, err)
		}
		if r, err := g.E.Eval(t.Context(), id, sandbox.EvalRequest{Code: "token"}); err != nil || r.Result != enginefake.TokenOf(1) {
			t.Errorf("child %d was told the token %q, %v", i+1, r.Result, err)
		}
	}
	tags := g.Transient()
	if len(tags) != 1 {
		t.Fatalf("snapshots in between: %q", tags)
	}
	s, err := g.E.SnapshotInfo(t.Context(), tags[0])
	if err != nil || s.BranchedFrom != g.Root.ID || s.ParentTag != "a" || len(s.Sandboxes) != 3 {
		t.Errorf("lineage: %+v, %v", s, err)
	}
	if a := exit(g, ids[1], 7, forkwire.MaxResult); a.Error != nil {
		t.Fatal(a.Error)
	}
	if a := wait(g, g.Root.ID); a.Ended == nil || a.Ended.ID != ids[1] || a.Ended.Code != 7 || a.Bytes != forkwire.MaxResult || a.Ended.Status != forkwire.Exited {
		t.Errorf("got %+v", a)
	}
	enginefake.Eventually(t, "end of the child that exited", func() bool { return !listed(g, ids[1]) })
	if err := g.E.Kill(t.Context(), ids[2]); err != nil {
		t.Fatal(err)
	}
	if a := wait(g, g.Root.ID, ids[2]); a.Ended == nil || a.Ended.Status != forkwire.Killed || a.Ended.Code != -1 {
		t.Errorf("got %+v", a)
	}
	if _, err := g.E.Eval(t.Context(), ids[0], sandbox.EvalRequest{Code: "poweroff", Timeout: time.Second}); err == nil {
		t.Error("the child answered when it was off")
	}
	if a := wait(g, g.Root.ID); a.Ended == nil || a.Ended.ID != ids[0] || a.Ended.Status != forkwire.Died || !strings.Contains(a.Ended.Reason, "power") {
		t.Errorf("got %+v", a)
	}
	refused(g, wait(g, g.Root.ID), forkwire.NoChildren, "no child")
	g.NoneTransient()
}

func TestGuestForkIsDeniedByDefault(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	stranger := g.Host.Fork(g.E, "a", 1)[0].ID
	before := g.Stored()
	refused(g, g.Fork(stranger, 1), forkwire.Denied, "without guest_fork")
	refused(g, exit(g, stranger, 0, 0), forkwire.NotAChild, "keeps running")
	refused(g, exit(g, g.Root.ID, 0, 0), forkwire.NotAChild, "keeps running")
	refused(g, wait(g, stranger), forkwire.NoChildren, "no child")
	if now := g.Stored(); now != before || !listed(g, stranger) || !listed(g, g.Root.ID) {
		t.Errorf("stored are %s, before it was %s", now, before)
	}
}

func TestGuestForkLimits(t *testing.T) {
	g := enginefake.NewGuestBench(t, func(c *engine.Config) { c.GuestFork = sandbox.TreeLimits{Size: 4, Depth: 2, MemoryMiB: 1 << 20} })
	refused(g, g.Fork(g.Root.ID, 4), forkwire.Limit, "the maximum is 4")
	children := g.Forked(g.Root.ID, 1)
	grand := g.Forked(children[0], 1)
	refused(g, g.Fork(grand[0], 1), forkwire.Limit, "the maximum depth is 2")
	refused(g, g.Fork(g.Root.ID, 2), forkwire.Limit, "the maximum is 4")
	if a := exit(g, grand[0], 0, 0); a.Error != nil {
		t.Fatal(a.Error)
	}
	enginefake.Eventually(t, "room for two", func() bool { a := g.Fork(g.Root.ID, 2); return a.Error == nil })
	// The tree is still the root's tree after the root is gone.
	if err := g.E.Kill(t.Context(), g.Root.ID); err != nil {
		t.Fatal(err)
	}
	refused(g, g.Fork(children[0], 2), forkwire.Limit, "the maximum is 4")
	g.Forked(children[0], 1)
}

func TestGuestForkMemoryLimit(t *testing.T) {
	g := enginefake.NewGuestBench(t, func(c *engine.Config) { c.GuestFork = sandbox.TreeLimits{Size: 100, Depth: 2, MemoryMiB: 1} })
	refused(g, g.Fork(g.Root.ID, 1), forkwire.Limit, "1 MiB")
}

// A tree's disk budget covers its forks and the layers they leave, and is released again.
func TestGuestForkDiskBudget(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	limits := sandbox.Limits{DiskMiB: 16, Tree: sandbox.TreeBudget{DiskMiB: 68}}
	r, err := g.E.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, GuestFork: true, Limits: limits})
	if err != nil || r.Children[0].Err != nil {
		t.Fatal(err, r)
	}
	root := r.Children[0].Info.ID
	refused(g, g.Fork(root, 3), forkwire.Limit, "it may fill 68")
	children := g.Forked(root, 2)
	refused(g, g.Fork(children[0], 1), forkwire.Limit, "1 more of 16 MiB")
	g.Forked(g.Root.ID, 2) // another tree, without a budget
	if err := g.E.Kill(t.Context(), children[1]); err != nil {
		t.Fatal(err)
	}
	grand := g.Forked(children[0], 1)
	if i, err := g.E.Get(grand[0]); err != nil || i.Limits != limits || i.Kin.RootOf(i.ID) != root {
		t.Errorf("a grandchild is %+v, %v", i, err)
	}
	// The next daemon restores the used budget.
	g.Close(g.E)
	g.E = g.Open()
	refused(g, g.Fork(grand[0], 1), forkwire.Limit, "it may fill 68")
}

// The quota function is called before any other step, and its release at the end.
func TestGuestForksWithinQuotas(t *testing.T) {
	var held, asked atomic.Int32
	g := enginefake.NewGuestBench(t, func(c *engine.Config) {
		c.GuestQuota = func(_ context.Context, of sandbox.Info, n int) (func(), error) {
			asked.Add(1)
			switch {
			case n == 2:
				return nil, sandbox.Errorf(sandbox.ErrQuota, "", "the key's quota is 1")
			case n == 3:
				return nil, sandbox.Errorf(sandbox.ErrForbidden, "", "the key is revoked")
			case of.Kin.Root != "" && of.Kin.Depth == 0:
				return nil, errors.New("whose tree is it")
			}
			held.Add(1)
			return func() { held.Add(-1) }, nil
		}
	})
	before := g.Stored()
	refused(g, g.Fork(g.Root.ID, 2), forkwire.Limit, "quota is 1")
	refused(g, g.Fork(g.Root.ID, 3), forkwire.Denied, "revoked")
	g.StoredIs(before)
	children := g.Forked(g.Root.ID, 1)
	g.Forked(children[0], 1)
	g.Fault("restore-fail", 1)
	refused(g, g.Fork(g.Root.ID, 1), forkwire.Failed, "all 1 children failed")
	enginefake.Eventually(t, "nothing held", func() bool { return held.Load() == 0 })
	if n := asked.Load(); n != 5 {
		t.Errorf("it was asked %d times", n)
	}
}

// A failed fork has no effect, and the original keeps running.
func TestAGuestForkThatFails(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	before := g.Stored()
	for _, c := range []struct {
		token string
		n     int
		says  string
	}{{"capture-fail", 1, "KVM said no"}, {"captured-fail", 1, "no space left"}, {"restore-fail", 2, "all 2 children failed"}, {"identity-clone", 2, "all 2 children failed"}} {
		g.Fault(c.token, c.n)
		refused(g, g.Fork(g.Root.ID, 2), forkwire.Failed, c.says)
		refused(g, wait(g, g.Root.ID), forkwire.NoChildren, "no child")
		g.NoneTransient()
		g.StoredIs(before)
	}
	g.Fault("restore-fail", 1)
	a := g.Fork(g.Root.ID, 3)
	failed := slices.IndexFunc(a.Children, func(c forkwire.Child) bool { return strings.Contains(c.Error, "KVM said no") && c.ID == "" })
	if a.Error != nil || len(a.Children) != 3 || failed < 0 {
		t.Errorf("with one child that cannot be made: %+v, %v", a, a.Error)
	}
}

func TestALostAnswerOfAGuestFork(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	req := forkwire.Request{Op: forkwire.OpFork, N: 2, Token: g.Token()}
	g.Call(g.Root.ID, enginefake.Call{Req: req, HangUp: true})
	req.Again = true
	enginefake.Eventually(t, "two children", func() bool { return len(g.E.List()) == 3 })
	a := g.Call(g.Root.ID, enginefake.Call{Req: req})
	if a.Error != nil || len(a.Children) != 2 || len(g.E.List()) != 3 {
		t.Errorf("asked again: %+v, %v; %d sandboxes", a, a.Error, len(g.E.List()))
	}
	req.Token = g.Token()
	refused(g, g.Call(g.Root.ID, enginefake.Call{Req: req}), forkwire.Lost, "restarted")
}

func TestTwoGuestForksAtOnce(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	answers := make(chan forkwire.Answer, 2)
	for range 2 {
		req := forkwire.Request{Op: forkwire.OpFork, N: 2, Token: g.Token()}
		go func() {
			a, err := g.TryCall(g.Root.ID, enginefake.Call{Req: req})
			if err != nil {
				a.Error = forkwire.Errorf("test", "%v", err)
			}
			answers <- a
		}()
	}
	ids := map[string]bool{}
	for range 2 {
		a := <-answers
		if a.Error != nil {
			t.Fatal(a.Error)
		}
		for _, c := range a.Children {
			ids[c.ID] = true
		}
	}
	if len(ids) != 4 || len(g.Transient()) != 2 {
		t.Errorf("%d children of %q", len(ids), g.Transient())
	}
}

func TestFamiliesOutliveTheDaemon(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	ids := g.Forked(g.Root.ID, 3)
	if a := exit(g, ids[0], 5, 1000); a.Error != nil {
		t.Fatal(a.Error)
	}
	enginefake.Eventually(t, "end of the child", func() bool { return !listed(g, ids[0]) })
	dead, err := g.E.Get(ids[1])
	if err != nil {
		t.Fatal(err)
	}
	g.Close(g.E)
	p, err := os.FindProcess(dead.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	g.E = g.Open()
	if a := wait(g, g.Root.ID, ids[0]); a.Ended == nil || a.Ended.Code != 5 || a.Bytes != 1000 {
		t.Errorf("the one that had exited: %+v, %v", a, a.Error)
	}
	if a := wait(g, g.Root.ID, ids[1]); a.Ended == nil || a.Ended.Status != forkwire.Died {
		t.Errorf("the one that died meanwhile: %+v, %v", a, a.Error)
	}
	req := forkwire.Request{Op: forkwire.OpFork, N: 3, Token: enginefake.TokenOf(1), Again: true}
	if a := g.Call(g.Root.ID, enginefake.Call{Req: req}); len(a.Children) != 1 || a.Children[0].ID != ids[2] {
		t.Errorf("who is left of the call: %+v, %v", a, a.Error)
	}
	if a := exit(g, ids[2], 6, 0); a.Error != nil {
		t.Error(a.Error)
	}
	if a := wait(g, g.Root.ID); a.Ended == nil || a.Ended.ID != ids[2] || a.Ended.Code != 6 {
		t.Errorf("the one that lived on: %+v, %v", a, a.Error)
	}
	g.NoneTransient()
}

// Its parent can still wait for a paused child, also under the next daemon.
func TestAPausedChildIsWaitedFor(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	child := g.Forked(g.Root.ID, 1)[0]
	if _, err := g.E.Pause(t.Context(), child, sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	g.Close(g.E)
	g.E = g.Open()
	if err := g.E.Kill(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	if a := wait(g, g.Root.ID); a.Ended == nil || a.Ended.ID != child || a.Ended.Status != forkwire.Killed {
		t.Errorf("got %+v, %v", a, a.Error)
	}
}

func TestWhatAGuestMayDoToThePort(t *testing.T) {
	g := enginefake.NewGuestBench(t)
	for _, raw := range []string{"\n", "{}\n", "null\n", "[]\n", `{"op":"fork","n":-1}` + "\n", `{"op":"fork","n":1,"token":"../.."}` + "\n", `{"op":"exit","bytes":99999999}` + "\n", strings.Repeat("x", 70<<10)} {
		a, err := g.TryCall(g.Root.ID, enginefake.Call{Raw: []byte(raw)})
		if err == nil {
			refused(g, a, forkwire.Invalid, "")
		} else if len(raw) < 64<<10 { // with the long one, the connection may be closed before all is written
			t.Errorf("%.40q: %v", raw, err)
		}
	}
	// An unconfirmed end is offered again.
	child := g.Forked(g.Root.ID, 1)[0]
	if a := exit(g, child, 0, 10); a.Error != nil {
		t.Fatal(a.Error)
	}
	for range 2 {
		a := g.Call(g.Root.ID, enginefake.Call{Req: forkwire.Request{Op: forkwire.OpWait, TimeoutMS: 10000}, Keep: true})
		if a.Ended == nil || a.Bytes != 10 {
			t.Errorf("got %+v, %v", a, a.Error)
		}
	}
	refused(g, g.Call(g.Forked(g.Root.ID, 1)[0], enginefake.Call{Req: forkwire.Request{Op: forkwire.OpWait, TimeoutMS: 50}}), forkwire.NoChildren, "")
	refused(g, g.Call(g.Root.ID, enginefake.Call{Req: forkwire.Request{Op: forkwire.OpWait, IDs: []string{"sb-1"}, TimeoutMS: 50}}), forkwire.NoChildren, "")
	if left, _ := filepath.Glob(filepath.Join(g.Cfg.RunDir, "vm", "*", "*.tmp")); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}
