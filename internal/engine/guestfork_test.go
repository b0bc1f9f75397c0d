package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/guestfork"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

// fakeCall describes a call of the fake guest to agentproto.ForkPort.
type fakeCall struct {
	Raw    []byte `json:"raw,omitempty"` // instead of a request
	Req    forkwire.Request
	Size   int  // of the result
	HangUp bool // before the answer
	Keep   bool // do not confirm a child's end
}

// callHost acts as the fake guest's agent. It returns the answer as JSON.
func (f *fake) callHost(ctx context.Context, text []byte) (*connect.Response[agentv1.EvalResponse], error) {
	var call fakeCall
	if err := json.Unmarshal(text, &call); err != nil {
		return nil, err
	}
	c, err := f.server.DialHost(ctx, agentproto.ForkPort)
	if err != nil {
		return connect.NewResponse(&agentv1.EvalResponse{Error: err.Error()}), nil
	}
	defer c.Close()
	if call.Raw != nil {
		_, err = c.Write(call.Raw)
	} else {
		err = forkwire.WriteRequest(c, call.Req, make([]byte, call.Size))
	}
	if err != nil {
		return connect.NewResponse(&agentv1.EvalResponse{Error: err.Error()}), nil
	}
	if call.HangUp {
		return connect.NewResponse(&agentv1.EvalResponse{}), nil
	}
	a, _, err := forkwire.ReadAnswer(forkwire.NewReader(c))
	if err != nil {
		return connect.NewResponse(&agentv1.EvalResponse{Error: err.Error()}), nil
	}
	if a.Ended != nil && !call.Keep {
		c.Write([]byte{forkwire.Collected})
		io.Copy(io.Discard, c)
	}
	b, err := json.Marshal(a)
	return connect.NewResponse(&agentv1.EvalResponse{Result: string(b)}), err
}

// guestBench is an engine with one sandbox that may fork itself.
type guestBench struct {
	*host
	e    *Engine
	root sandbox.Info
	next int
}

func newGuestBench(t *testing.T, change ...func(*Config)) *guestBench {
	t.Helper()
	h := newHost(t)
	for _, c := range change {
		c(&h.cfg)
	}
	g := &guestBench{host: h, e: h.open()}
	h.snapshot(g.e, "a")
	r, err := g.e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, GuestFork: true})
	if err != nil || r.Children[0].Err != nil {
		t.Fatal(err, r)
	}
	g.root = r.Children[0].Info
	return g
}

func (g *guestBench) token() string {
	g.next++
	return tokenOf(g.next)
}

// tokenOf returns the test's n-th token.
func tokenOf(n int) string { return fmt.Sprintf("%08x%024x", n, n) }

// call makes a sandbox's guest call the host, and returns the answer.
func (g *guestBench) call(id string, c fakeCall) forkwire.Answer {
	g.t.Helper()
	a, err := g.tryCall(id, c)
	if err != nil {
		g.t.Fatal(err)
	}
	return a
}

func (g *guestBench) tryCall(id string, c fakeCall) (a forkwire.Answer, err error) {
	b, err := json.Marshal(c)
	if err != nil {
		return a, err
	}
	r, err := g.e.Eval(context.Background(), id, sandbox.EvalRequest{Code: "call " + string(b)})
	if err != nil || r.Error != "" {
		return a, fmt.Errorf("%s calls: %w: %s", id, err, r.Error)
	}
	if r.Result != "" {
		err = json.Unmarshal([]byte(r.Result), &a)
	}
	return a, err
}

func (g *guestBench) fork(id string, n int) forkwire.Answer {
	g.t.Helper()
	return g.call(id, fakeCall{Req: forkwire.Request{Op: forkwire.OpFork, N: n, Token: g.token()}})
}

// forked is like fork, but must succeed. It returns the children's ids.
func (g *guestBench) forked(id string, n int) []string {
	g.t.Helper()
	a := g.fork(id, n)
	if a.Error != nil || len(a.Children) != n {
		g.t.Fatalf("fork of %s: %+v, %v", id, a, a.Error)
	}
	var ids []string
	for _, c := range a.Children {
		if c.Error != "" {
			g.t.Fatalf("child %d: %s", c.Index, c.Error)
		}
		ids = append(ids, c.ID)
	}
	return ids
}

func (g *guestBench) exit(id string, code, size int) forkwire.Answer {
	g.t.Helper()
	a, err := g.tryCall(id, fakeCall{Req: forkwire.Request{Op: forkwire.OpExit, Code: code}, Size: size})
	if err != nil && !strings.Contains(err.Error(), vmproc.ErrNoVM.Error()) { // it ends before its Eval does
		g.t.Fatal(err)
	}
	return a
}

func (g *guestBench) wait(id string, ids ...string) forkwire.Answer {
	g.t.Helper()
	return g.call(id, fakeCall{Req: forkwire.Request{Op: forkwire.OpWait, IDs: ids, TimeoutMS: 20000}})
}

func (g *guestBench) refused(a forkwire.Answer, code forkwire.Code, words string) {
	g.t.Helper()
	if a.Error == nil || a.Error.Code != code || !strings.Contains(a.Error.Message, words) {
		g.t.Errorf("got %+v, %v, want %s: %s", a, a.Error, code, words)
	}
}

// transient returns the tags of intermediate snapshots.
func (g *guestBench) transient() []string {
	g.t.Helper()
	list, err := g.e.ListSnapshots(context.Background())
	if err != nil {
		g.t.Fatal(err)
	}
	var out []string
	for _, s := range list {
		if s.Transient {
			out = append(out, s.Tag)
		}
	}
	return out
}

func (g *guestBench) noneTransient() {
	g.t.Helper()
	eventually(g.t, "end of the snapshots in between", func() bool { return len(g.transient()) == 0 })
}

// storedIs waits for the end of a running deletion.
func (g *guestBench) storedIs(want string) {
	g.t.Helper()
	eventually(g.t, "store with "+want, func() bool { return g.stored() == want })
}

func (g *guestBench) listed(id string) bool {
	_, err := g.e.Get(id)
	return err == nil
}

func TestGuestForksExitsAndWaits(t *testing.T) {
	g := newGuestBench(t)
	ids := g.forked(g.root.ID, 3)
	for i, id := range ids {
		info, err := g.e.Get(id)
		k := info.Kin
		if err != nil || info.Index != i+1 || k.Parent != g.root.ID || k.Root != g.root.ID || k.Depth != 1 || !k.MayFork {
			t.Errorf("child %d: %+v, %v", i+1, info, err)
		}
		if r, err := g.e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "token"}); err != nil || r.Result != tokenOf(1) {
			t.Errorf("child %d was told the token %q, %v", i+1, r.Result, err)
		}
	}
	tags := g.transient()
	if len(tags) != 1 {
		t.Fatalf("snapshots in between: %q", tags)
	}
	s, err := g.e.SnapshotInfo(t.Context(), tags[0])
	if err != nil || s.BranchedFrom != g.root.ID || s.ParentTag != "a" || len(s.Sandboxes) != 3 {
		t.Errorf("lineage: %+v, %v", s, err)
	}
	if a := g.exit(ids[1], 7, forkwire.MaxResult); a.Error != nil {
		t.Fatal(a.Error)
	}
	if a := g.wait(g.root.ID); a.Ended == nil || a.Ended.ID != ids[1] || a.Ended.Code != 7 || a.Bytes != forkwire.MaxResult || a.Ended.Status != forkwire.Exited {
		t.Errorf("got %+v", a)
	}
	eventually(t, "end of the child that exited", func() bool { return !g.listed(ids[1]) })
	if err := g.e.Kill(t.Context(), ids[2]); err != nil {
		t.Fatal(err)
	}
	if a := g.wait(g.root.ID, ids[2]); a.Ended == nil || a.Ended.Status != forkwire.Killed || a.Ended.Code != -1 {
		t.Errorf("got %+v", a)
	}
	if _, err := g.e.Eval(t.Context(), ids[0], sandbox.EvalRequest{Code: "poweroff", Timeout: time.Second}); err == nil {
		t.Error("the child answered when it was off")
	}
	if a := g.wait(g.root.ID); a.Ended == nil || a.Ended.ID != ids[0] || a.Ended.Status != forkwire.Died || !strings.Contains(a.Ended.Reason, "power") {
		t.Errorf("got %+v", a)
	}
	g.refused(g.wait(g.root.ID), forkwire.NoChildren, "no child")
	g.noneTransient()
}

func TestGuestForkIsDeniedByDefault(t *testing.T) {
	g := newGuestBench(t)
	stranger := g.host.fork(g.e, "a", 1)[0].ID
	before := g.stored()
	g.refused(g.fork(stranger, 1), forkwire.Denied, "without guest_fork")
	g.refused(g.exit(stranger, 0, 0), forkwire.NotAChild, "keeps running")
	g.refused(g.exit(g.root.ID, 0, 0), forkwire.NotAChild, "keeps running")
	g.refused(g.wait(stranger), forkwire.NoChildren, "no child")
	if now := g.stored(); now != before || !g.listed(stranger) || !g.listed(g.root.ID) {
		t.Errorf("stored are %s, before it was %s", now, before)
	}
}

func TestGuestForkLimits(t *testing.T) {
	g := newGuestBench(t, func(c *Config) { c.GuestFork = sandbox.TreeLimits{Size: 4, Depth: 2, MemoryMiB: 1 << 20} })
	g.refused(g.fork(g.root.ID, 4), forkwire.Limit, "the maximum is 4")
	children := g.forked(g.root.ID, 1)
	grand := g.forked(children[0], 1)
	g.refused(g.fork(grand[0], 1), forkwire.Limit, "the maximum depth is 2")
	g.refused(g.fork(g.root.ID, 2), forkwire.Limit, "the maximum is 4")
	if a := g.exit(grand[0], 0, 0); a.Error != nil {
		t.Fatal(a.Error)
	}
	eventually(t, "room for two", func() bool { a := g.fork(g.root.ID, 2); return a.Error == nil })
	// The tree is still the root's tree after the root is gone.
	if err := g.e.Kill(t.Context(), g.root.ID); err != nil {
		t.Fatal(err)
	}
	g.refused(g.fork(children[0], 2), forkwire.Limit, "the maximum is 4")
	g.forked(children[0], 1)
}

func TestGuestForkMemoryLimit(t *testing.T) {
	g := newGuestBench(t, func(c *Config) { c.GuestFork = sandbox.TreeLimits{Size: 100, Depth: 2, MemoryMiB: 1} })
	g.refused(g.fork(g.root.ID, 1), forkwire.Limit, "1 MiB")
}

// A tree's disk budget covers its forks and the layers they leave, and is released again.
func TestGuestForkDiskBudget(t *testing.T) {
	g := newGuestBench(t)
	limits := sandbox.Limits{DiskMiB: 16, Tree: sandbox.TreeBudget{DiskMiB: 68}}
	r, err := g.e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, GuestFork: true, Limits: limits})
	if err != nil || r.Children[0].Err != nil {
		t.Fatal(err, r)
	}
	root := r.Children[0].Info.ID
	g.refused(g.fork(root, 3), forkwire.Limit, "it may fill 68")
	children := g.forked(root, 2)
	g.refused(g.fork(children[0], 1), forkwire.Limit, "1 more of 16 MiB")
	g.forked(g.root.ID, 2) // another tree, without a budget
	if err := g.e.Kill(t.Context(), children[1]); err != nil {
		t.Fatal(err)
	}
	grand := g.forked(children[0], 1)
	if i, err := g.e.Get(grand[0]); err != nil || i.Limits != limits || i.Kin.RootOf(i.ID) != root {
		t.Errorf("a grandchild is %+v, %v", i, err)
	}
	// The next daemon restores the used budget.
	g.close(g.e)
	g.e = g.open()
	g.refused(g.fork(grand[0], 1), forkwire.Limit, "it may fill 68")
}

// The quota function is called before any other step, and its release at the end.
func TestGuestForksWithinQuotas(t *testing.T) {
	var held, asked atomic.Int32
	g := newGuestBench(t, func(c *Config) {
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
	before := g.stored()
	g.refused(g.fork(g.root.ID, 2), forkwire.Limit, "quota is 1")
	g.refused(g.fork(g.root.ID, 3), forkwire.Denied, "revoked")
	g.storedIs(before)
	children := g.forked(g.root.ID, 1)
	g.forked(children[0], 1)
	g.fault("restore-fail", 1)
	g.refused(g.fork(g.root.ID, 1), forkwire.Failed, "all 1 children failed")
	eventually(t, "nothing held", func() bool { return held.Load() == 0 })
	if n := asked.Load(); n != 5 {
		t.Errorf("it was asked %d times", n)
	}
}

// A failed fork has no effect, and the original keeps running.
func TestAGuestForkThatFails(t *testing.T) {
	g := newGuestBench(t)
	before := g.stored()
	for _, c := range []struct {
		token string
		n     int
		says  string
	}{{"capture-fail", 1, "KVM said no"}, {"captured-fail", 1, "no space left"}, {"restore-fail", 2, "all 2 children failed"}, {"identity-clone", 2, "all 2 children failed"}} {
		g.fault(c.token, c.n)
		g.refused(g.fork(g.root.ID, 2), forkwire.Failed, c.says)
		g.refused(g.wait(g.root.ID), forkwire.NoChildren, "no child")
		g.noneTransient()
		g.storedIs(before)
	}
	g.fault("restore-fail", 1)
	a := g.fork(g.root.ID, 3)
	failed := slices.IndexFunc(a.Children, func(c forkwire.Child) bool { return strings.Contains(c.Error, "KVM said no") && c.ID == "" })
	if a.Error != nil || len(a.Children) != 3 || failed < 0 {
		t.Errorf("with one child that cannot be made: %+v, %v", a, a.Error)
	}
}

func TestALostAnswerOfAGuestFork(t *testing.T) {
	g := newGuestBench(t)
	req := forkwire.Request{Op: forkwire.OpFork, N: 2, Token: g.token()}
	g.call(g.root.ID, fakeCall{Req: req, HangUp: true})
	req.Again = true
	eventually(t, "two children", func() bool { return len(g.e.List()) == 3 })
	a := g.call(g.root.ID, fakeCall{Req: req})
	if a.Error != nil || len(a.Children) != 2 || len(g.e.List()) != 3 {
		t.Errorf("asked again: %+v, %v; %d sandboxes", a, a.Error, len(g.e.List()))
	}
	req.Token = g.token()
	g.refused(g.call(g.root.ID, fakeCall{Req: req}), forkwire.Lost, "restarted")
}

func TestTwoGuestForksAtOnce(t *testing.T) {
	g := newGuestBench(t)
	answers := make(chan forkwire.Answer, 2)
	for range 2 {
		req := forkwire.Request{Op: forkwire.OpFork, N: 2, Token: g.token()}
		go func() {
			a, err := g.tryCall(g.root.ID, fakeCall{Req: req})
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
	if len(ids) != 4 || len(g.transient()) != 2 {
		t.Errorf("%d children of %q", len(ids), g.transient())
	}
}

// An intermediate snapshot is kept exactly as long as it is needed.
func TestSnapshotsInBetween(t *testing.T) {
	g := newGuestBench(t)
	child := g.forked(g.root.ID, 1)[0]
	tag := g.transient()[0]
	grand := g.forked(child, 1)[0]
	if err := g.e.Kill(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	if _, err := g.e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: grand, Tag: "kept"}); err != nil {
		t.Fatal(err)
	}
	if err := g.e.Kill(t.Context(), grand); err != nil {
		t.Fatal(err)
	}
	g.e.families.Sweep(t.Context())
	if now := g.transient(); len(now) != 2 || !slices.Contains(now, tag) {
		t.Errorf("what a snapshot is built on: %q", now)
	}
	if err := g.e.DeleteSnapshot(t.Context(), "kept", sandbox.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.noneTransient()
	g.storedIs("a")
}

func TestFamiliesOutliveTheDaemon(t *testing.T) {
	g := newGuestBench(t)
	ids := g.forked(g.root.ID, 3)
	if a := g.exit(ids[0], 5, 1000); a.Error != nil {
		t.Fatal(a.Error)
	}
	eventually(t, "end of the child", func() bool { return !g.listed(ids[0]) })
	dead, err := g.e.Get(ids[1])
	if err != nil {
		t.Fatal(err)
	}
	g.close(g.e)
	p, err := os.FindProcess(dead.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	g.e = g.open()
	if a := g.wait(g.root.ID, ids[0]); a.Ended == nil || a.Ended.Code != 5 || a.Bytes != 1000 {
		t.Errorf("the one that had exited: %+v, %v", a, a.Error)
	}
	if a := g.wait(g.root.ID, ids[1]); a.Ended == nil || a.Ended.Status != forkwire.Died {
		t.Errorf("the one that died meanwhile: %+v, %v", a, a.Error)
	}
	req := forkwire.Request{Op: forkwire.OpFork, N: 3, Token: tokenOf(1), Again: true}
	if a := g.call(g.root.ID, fakeCall{Req: req}); len(a.Children) != 1 || a.Children[0].ID != ids[2] {
		t.Errorf("who is left of the call: %+v, %v", a, a.Error)
	}
	if a := g.exit(ids[2], 6, 0); a.Error != nil {
		t.Error(a.Error)
	}
	if a := g.wait(g.root.ID); a.Ended == nil || a.Ended.ID != ids[2] || a.Ended.Code != 6 {
		t.Errorf("the one that lived on: %+v, %v", a, a.Error)
	}
	g.noneTransient()
}

// Its parent can still wait for a paused child, also under the next daemon.
func TestAPausedChildIsWaitedFor(t *testing.T) {
	g := newGuestBench(t)
	child := g.forked(g.root.ID, 1)[0]
	if _, err := g.e.Pause(t.Context(), child, sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	g.close(g.e)
	g.e = g.open()
	if err := g.e.Kill(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	if a := g.wait(g.root.ID); a.Ended == nil || a.Ended.ID != child || a.Ended.Status != forkwire.Killed {
		t.Errorf("got %+v, %v", a, a.Error)
	}
}

func TestWhatAGuestMayDoToThePort(t *testing.T) {
	g := newGuestBench(t)
	for _, raw := range []string{"\n", "{}\n", "null\n", "[]\n", `{"op":"fork","n":-1}` + "\n", `{"op":"fork","n":1,"token":"../.."}` + "\n", `{"op":"exit","bytes":99999999}` + "\n", strings.Repeat("x", 70<<10)} {
		a, err := g.tryCall(g.root.ID, fakeCall{Raw: []byte(raw)})
		if err == nil {
			g.refused(a, forkwire.Invalid, "")
		} else if len(raw) < 64<<10 { // with the long one, the connection may be closed before all is written
			t.Errorf("%.40q: %v", raw, err)
		}
	}
	// An unconfirmed end is offered again.
	child := g.forked(g.root.ID, 1)[0]
	if a := g.exit(child, 0, 10); a.Error != nil {
		t.Fatal(a.Error)
	}
	for range 2 {
		a := g.call(g.root.ID, fakeCall{Req: forkwire.Request{Op: forkwire.OpWait, TimeoutMS: 10000}, Keep: true})
		if a.Ended == nil || a.Bytes != 10 {
			t.Errorf("got %+v, %v", a, a.Error)
		}
	}
	g.refused(g.call(g.forked(g.root.ID, 1)[0], fakeCall{Req: forkwire.Request{Op: forkwire.OpWait, TimeoutMS: 50}}), forkwire.NoChildren, "")
	g.refused(g.call(g.root.ID, fakeCall{Req: forkwire.Request{Op: forkwire.OpWait, IDs: []string{"sb-1"}, TimeoutMS: 50}}), forkwire.NoChildren, "")
	if left, _ := filepath.Glob(filepath.Join(g.cfg.RunDir, "vm", "*", "*.tmp")); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}

// Waiters hold connections, and a guest has a limited number of them. They do not keep the engine
// from closing.
func TestWaitersAreBoundedAndLetGo(t *testing.T) {
	g := newGuestBench(t)
	g.forked(g.root.ID, 1)
	done := make(chan struct{}, guestfork.MaxCalls)
	for range guestfork.MaxCalls {
		go func() {
			defer func() { done <- struct{}{} }()
			g.tryCall(g.root.ID, fakeCall{Req: forkwire.Request{Op: forkwire.OpWait}})
		}()
	}
	eventually(t, "full house", func() bool { return g.e.families.Calls(g.root.ID) == guestfork.MaxCalls })
	if _, err := g.tryCall(g.root.ID, fakeCall{Req: forkwire.Request{Op: forkwire.OpWait}}); err == nil {
		t.Error("one more was let in")
	}
	for _, i := range g.e.List() {
		if err := g.e.Kill(context.Background(), i.ID); err != nil {
			t.Error(err)
		}
	}
	for range guestfork.MaxCalls {
		<-done
	}
}
