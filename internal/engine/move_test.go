package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forkd/forkd/internal/domain/drain"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/tenancy"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/store/hub"
)

// neighbour is another engine in this process, as a taker sees it. Its functions change what it says.
type neighbour struct {
	e        *Engine
	describe func(*sandbox.Handover)
	// lost is returned after a gift that has happened.
	lost error
	gave int
}

func (n *neighbour) Name() string { return "https://giver" }

func (n *neighbour) Describe(ctx context.Context, id string) (sandbox.Handover, error) {
	h, err := n.e.Handover(ctx, id, sandbox.HandoverRequest{})
	if err == nil && n.describe != nil {
		n.describe(&h)
	}
	return h, err
}

func (n *neighbour) Snapshot(ctx context.Context, h sandbox.Handover, receive func(io.Reader) error) error {
	var b, out bytes.Buffer
	if err := n.e.ExportSnapshot(ctx, sandbox.ExportRequest{Tag: h.PausedIn}, &b); err != nil {
		return err
	}
	l, err := hub.OpenLayout(bytes.NewReader(b.Bytes()))
	if err != nil {
		return err
	}
	if err := (&hub.Outgoing{Raw: l.Raw, Artifact: l.Artifact, Open: l.Blob}).Write(&out, false); err != nil {
		return err
	}
	return receive(&out)
}

func (n *neighbour) Give(ctx context.Context, id string, req sandbox.HandoverRequest) error {
	n.gave++
	if _, err := n.e.Handover(ctx, id, req); err != nil {
		return err
	}
	return n.lost
}

func take(ctx context.Context, to *Engine, from *neighbour, id string) (sandbox.Info, error) {
	return to.Take(ctx, sandbox.TakeRequest{ID: id, From: from, Node: "node-b",
		Again: func(string) (sandbox.Giver, error) { return from, nil }})
}

// movePair returns two daemons, and a paused sandbox of the first.
func movePair(t *testing.T) (one, two *host, a, b *Engine, sb sandbox.Info) {
	t.Helper()
	one, two = newHost(t), newHost(t)
	a, b = one.open(), two.open()
	b.CPU = intel
	sb = one.disky(a, 1)[0]
	one.eval(a, sb.ID, "x = 41")
	return one, two, a, b, one.pause(a, sb.ID)
}

// A paused sandbox goes on at another daemon as itself, and comes back.
func TestASandboxMoves(t *testing.T) {
	one, two, a, b, sb := movePair(t)
	a.CPU = intel
	who := whoOf(t, a, sb.ID)
	if _, err := take(t.Context(), b, &neighbour{e: a}, sb.ID); err != nil {
		t.Fatal(err)
	}
	if got := mustGet(t, b, sb.ID); got.Status != sandbox.StatusPaused || got.Owner != sb.Owner {
		t.Errorf("taken: %+v", got)
	}
	_, err := a.Get(sb.ID)
	wantError(t, err, sandbox.ErrNotFound, "was moved to node node-b")
	wantError(t, errorOf(a.Resume(t.Context(), sb.ID)), sandbox.ErrNotFound, "was moved")
	wantError(t, a.Kill(t.Context(), sb.ID), sandbox.ErrNotFound, "was moved")
	eventually(t, "the giver's snapshot is deleted", func() bool { return len(one.pauses()) == 0 })
	two.resume(b, sb.ID)
	two.isItself(b, sb.ID, 2)
	if got := whoOf(t, b, sb.ID); got.MachineID != who.MachineID {
		t.Errorf("the machine is %q, and was %q", got.MachineID, who.MachineID)
	}
	wantError(t, errorOf(a.Handover(t.Context(), sb.ID, sandbox.HandoverRequest{})), sandbox.ErrNotFound, "was moved")

	// A restart of the giver makes no difference.
	one.close(a)
	a = one.open()
	a.CPU = intel
	_, err = a.Get(sb.ID)
	wantError(t, err, sandbox.ErrNotFound, "was moved to node node-b")

	two.pause(b, sb.ID)
	if _, err := take(t.Context(), a, &neighbour{e: b}, sb.ID); err != nil {
		t.Fatal(err)
	}
	one.resume(a, sb.ID)
	one.isItself(a, sb.ID, 2)
	if names := one.pausedRecords(); names != "" {
		t.Errorf("records at the first daemon: %s", names)
	}
	if err := a.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no snapshots", func() bool { return len(one.pauses())+len(two.pauses()) == 0 })
}

func whoOf(t *testing.T, e *Engine, id string) sandbox.Identity {
	t.Helper()
	s, _, err := e.sandboxes.Find(id)
	if err != nil {
		t.Fatal(err)
	}
	return s.Who()
}

// A giver's answer is lost. The sandbox has no other owner meanwhile, and the claim is repeated.
func TestAGiftWithoutAnAnswer(t *testing.T) {
	one, two, a, b, sb := movePair(t)
	n := &neighbour{e: a, lost: sandbox.Errorf(sandbox.ErrNoResources, "", "connection reset")}
	_, err := take(t.Context(), b, n, sb.ID)
	wantError(t, err, sandbox.ErrNoResources, "repeat the request")
	for e, want := range map[*Engine]error{a: sandbox.ErrNotFound, b: sandbox.ErrNoResources} {
		if _, err := e.Get(sb.ID); !errors.Is(err, want) {
			t.Errorf("listed: %v", err)
		}
		wantError(t, errorOf(e.Resume(t.Context(), sb.ID)), want)
	}
	two.close(b)
	b = two.open()
	b.CPU = intel
	if tags := two.pauses(); len(tags) != 1 {
		t.Errorf("the next daemon has kept %v", tags)
	}
	// That a giver does not know the sandbox by now is no proof: its address may be another daemon's.
	stranger := newHost(t).open()
	_, err = take(t.Context(), b, &neighbour{e: stranger}, sb.ID)
	wantError(t, err, sandbox.ErrNoResources, "repeat the request")

	// Requests repeated at the same time all succeed.
	var all errgroup.Group
	for range 4 {
		all.Go(func() error {
			got, err := take(t.Context(), b, &neighbour{e: a}, sb.ID)
			if err == nil && got.ID != sb.ID {
				err = fmt.Errorf("got %s", got.ID)
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	two.resume(b, sb.ID)
	two.isItself(b, sb.ID, 2)
	if len(one.pauses()) != 0 {
		t.Error("the giver has kept its snapshot")
	}
}

// The giver resumes the sandbox instead. It keeps the sandbox, and the taker drops its copy.
func TestAClaimThatIsRefused(t *testing.T) {
	one, two, a, b, sb := movePair(t)
	n := &neighbour{e: a, describe: func(*sandbox.Handover) {}}
	unset := failpoint.Set(func(s failpoint.Step) error {
		if s == failpoint.MoveAsked {
			one.resume(a, sb.ID)
		}
		return nil
	})
	_, err := take(t.Context(), b, n, sb.ID)
	unset()
	wantError(t, err, sandbox.ErrConflict)
	one.isItself(a, sb.ID, 2)
	if names := two.pausedRecords(); names != "" || len(two.pauses()) != 0 {
		t.Errorf("the taker has kept %s %v", names, two.pauses())
	}
	_, err = take(t.Context(), b, n, sb.ID)
	wantError(t, err, sandbox.ErrConflict, "pause it first")
	one.pause(a, sb.ID)
	if _, err := take(t.Context(), b, n, sb.ID); err != nil {
		t.Error(err)
	}
}

// Of several takers one gets the sandbox.
func TestOneTakerWins(t *testing.T) {
	_, two, a, b, sb := movePair(t)
	three := newHost(t)
	c := three.open()
	c.CPU = intel
	errs := make(chan error, 2)
	for _, e := range []*Engine{b, c} {
		go func() { errs <- errorOf(take(t.Context(), e, &neighbour{e: a}, sb.ID)) }()
	}
	first, second := <-errs, <-errs
	if (first == nil) == (second == nil) {
		t.Errorf("%v and %v", first, second)
	}
	if n := len(b.List()) + len(c.List()) + len(a.List()); n != 1 {
		t.Errorf("it is listed %d times", n)
	}
	eventually(t, "one snapshot", func() bool { return len(two.pauses())+len(three.pauses()) == 1 })
}

// A kill at the giver is not undone by a claim, and the taker drops its copy.
func TestAKillBeforeTheGift(t *testing.T) {
	_, two, a, b, sb := movePair(t)
	unset := failpoint.Set(func(s failpoint.Step) error {
		if s == failpoint.MoveAsked {
			if err := a.Kill(context.Background(), sb.ID); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	defer unset()
	_, err := take(t.Context(), b, &neighbour{e: a}, sb.ID)
	wantError(t, err, sandbox.ErrNotFound)
	if names := two.pausedRecords(); names != "" || len(two.pauses()) != 0 || len(b.List()) != 0 {
		t.Errorf("the taker has kept %s %v", names, two.pauses())
	}
}

// moved is the work of two daemons that are killed at a step.
func (e *Engine) doomedToMove(ctx context.Context, taker Config) error {
	if _, err := e.CreateSnapshot(ctx, sandbox.CreateRequest{Tag: "d", Image: "disky"}, nil); err != nil {
		return err
	}
	r, err := e.Fork(ctx, sandbox.ForkRequest{Tag: "d", N: 1})
	if err != nil {
		return err
	}
	id := r.Children[0].Info.ID
	if _, err := e.Pause(ctx, id, sandbox.PauseOptions{}); err != nil {
		return err
	}
	b, err := Open(ctx, taker)
	if err != nil {
		return err
	}
	b.CPU = intel
	_, err = take(ctx, b, &neighbour{e: e}, id)
	return err
}

// Both daemons are killed at every step of a move. The sandbox then has one owner: the giver, or the taker with the
// giver's word. A repeated request ends at the taker.
func TestDaemonsKilledAtAStepOfAMove(t *testing.T) {
	for _, c := range []struct {
		step  failpoint.Step
		giver bool // it still has the sandbox
	}{
		{failpoint.MoveCopied, true}, {failpoint.MoveAsked, true}, {failpoint.MoveGiven, false},
		{failpoint.MoveAnswered, false}, {failpoint.MoveTaken, false},
	} {
		t.Run(string(c.step), func(t *testing.T) {
			one, two := newHost(t), newHost(t)
			one.makeUpper()
			one.killDaemonTo("move:"+two.cfg.StoreDir+":"+two.cfg.RunDir, string(c.step))
			a, b := one.open(), two.open()
			b.CPU = intel
			id := soleID(t, one, two)
			at, bt := len(a.List()) == 1, len(b.List()) == 1
			if at != c.giver || bt != (c.step == failpoint.MoveTaken) {
				t.Fatalf("listed by the giver: %v, by the taker: %v", at, bt)
			}
			if c.step == failpoint.MoveCopied {
				eventually(t, "the copy without a claim is swept", func() bool { return len(two.pauses()) == 0 })
			}
			if !bt {
				want := sandbox.ErrNoResources // there is a claim
				if c.step == failpoint.MoveCopied {
					want = sandbox.ErrNotFound
				}
				wantError(t, errorOf(b.Resume(t.Context(), id)), want)
				if _, err := take(t.Context(), b, &neighbour{e: a}, id); err != nil {
					t.Fatal(err)
				}
			}
			if len(a.List()) != 0 || len(b.List()) != 1 {
				t.Errorf("then: %d and %d", len(a.List()), len(b.List()))
			}
			two.resume(b, id)
			two.isItself(b, id, 2)
			eventually(t, "the giver's snapshot is deleted", func() bool { return len(one.pauses()) == 0 })
			if err := b.Kill(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			eventually(t, "nothing left", func() bool { return len(two.pauses()) == 0 && two.pausedRecords() == "" })
		})
	}
}

// soleID returns the id of the one sandbox with records.
func soleID(t *testing.T, hosts ...*host) (id string) {
	t.Helper()
	for _, h := range hosts {
		for _, name := range strings.Fields(h.pausedRecords()) {
			id, _, _ = strings.Cut(name, ".")
		}
	}
	if id == "" {
		t.Fatal("no record is left")
	}
	return id
}

// A taker drops a claim that the giver does not answer if its user kills the sandbox.
func TestAClaimIsDroppedByAKill(t *testing.T) {
	_, two, a, b, sb := movePair(t)
	n := &neighbour{e: a, lost: sandbox.Errorf(sandbox.ErrNoResources, "", "connection reset")}
	_, err := take(t.Context(), b, n, sb.ID)
	wantError(t, err, sandbox.ErrNoResources)
	if err := b.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if names := two.pausedRecords(); names != "" {
		t.Errorf("left: %s", names)
	}
}

// A peer's word about a sandbox is not taken for more than a daemon would record.
func TestAGiverThatLies(t *testing.T) {
	_, two, a, b, sb := movePair(t)
	edit := func(change func(rec map[string]any)) func(*sandbox.Handover) {
		return func(h *sandbox.Handover) {
			var rec map[string]any
			if err := json.Unmarshal(h.Record, &rec); err != nil {
				t.Error(err)
			}
			change(rec)
			h.Record, _ = json.Marshal(rec)
		}
	}
	info := func(field string, value any) func(*sandbox.Handover) {
		return edit(func(rec map[string]any) { rec["info"].(map[string]any)[field] = value })
	}
	for name, lie := range map[string]func(*sandbox.Handover){
		"another sandbox":       func(h *sandbox.Handover) { h.ID = "sb-1111-0001" },
		"another in the record": info("ID", "sb-1111-0001"),
		"another tenant":        info("Owner", "acme"),
		"another tenant's tag":  func(h *sandbox.Handover) { h.PausedIn = "d" },
		"running":               info("Status", "running"),
		"a tap":                 info("Network", map[string]any{"tap": "tap0"}),
		"a secret":              info("Secrets", []any{map[string]any{"name": "x"}}),
		"volumes":               info("Volumes", []any{map[string]any{}}),
		"a family":              info("Kin", map[string]any{"may_fork": true}),
		"a shape":               info("Shape", map[string]any{"memory_mib": 1, "vcpus": 1, "disks": 1}),
		"a disk":                info("DiskBytes", 1<<50),
		"limits":                info("Limits", map[string]any{"memory_mib": -1}),
		"a life":                info("Life", map[string]any{"TTL": -1}),
		"labels":                info("Labels", map[string]any{"": "\n"}),
		"a host name":           info("Hostname", "evil"),
		"a field":               info("Unheard", true),
		"no JSON":               func(h *sandbox.Handover) { h.Record = []byte("{") },
		"too much":              func(h *sandbox.Handover) { h.Record = append(h.Record, make([]byte, sandbox.MaxHandover)...) },
		"environment":           edit(func(r map[string]any) { r["who"].(map[string]any)["env"] = map[string]any{"a=b": "c"} }),
		"a machine":             edit(func(r map[string]any) { r["who"].(map[string]any)["machine_id"] = "../x" }),
	} {
		n := &neighbour{e: a, describe: lie}
		got, err := take(t.Context(), b, n, sb.ID)
		switch {
		case err == nil:
			t.Errorf("%s is taken: %+v", name, got)
		case n.gave > 0:
			t.Errorf("%s: the giver has given it up: %v", name, err)
		}
	}
	if names := two.pausedRecords(); names != "" || len(two.pauses()) != 0 {
		t.Errorf("the taker has kept %s %v", names, two.pauses())
	}
	if _, err := take(t.Context(), b, &neighbour{e: a}, sb.ID); err != nil {
		t.Error(err)
	}
}

// What binds a sandbox to its daemon is named, and the sandbox stays.
func TestABoundSandboxStays(t *testing.T) {
	one, _, a, b, sb := movePair(t)
	one.resume(a, sb.ID)
	_, err := take(t.Context(), b, &neighbour{e: a}, sb.ID)
	wantError(t, err, sandbox.ErrConflict, "pause it first")
	one.pauseBy(a, sb.ID, sandbox.PauseOptions{FilesystemOnly: true})
	_, err = take(t.Context(), b, &neighbour{e: a}, sb.ID)
	wantError(t, err, sandbox.ErrUnsupported, "without its memory")
	one.resume(a, sb.ID)
}

// A policy goes with its sandbox to a daemon that can enforce it unchanged.
func TestAPolicyMoves(t *testing.T) {
	one, _ := netHost(t)
	a := one.open()
	one.makeUpper()
	one.snapshot(a, "x")
	policy := netpolicy.Spec{Allow: []string{"example.com:443"}, Limits: netpolicy.Limits{Flows: 8}}
	paused := func(p netpolicy.Spec) string {
		r, err := a.Fork(t.Context(), sandbox.ForkRequest{Tag: "x", N: 1, Network: &p, HostPorts: netpolicy.HostGrant{All: true}})
		if err != nil || r.Children[0].Err != nil {
			t.Fatal(err, r)
		}
		one.pause(a, r.Children[0].Info.ID)
		return r.Children[0].Info.ID
	}
	id := paused(policy)
	local := paused(netpolicy.Spec{Allow: []string{netpolicy.HostName + ":80"}})

	without := newHost(t).open()
	without.CPU = intel
	_, err := take(t.Context(), without, &neighbour{e: a}, id)
	wantError(t, err, sandbox.ErrUnsupported, "no forkd-net")
	narrow, _ := netHost(t)
	narrow.cfg.NetCeiling = &netpolicy.Spec{Default: netpolicy.Public, Deny: []string{"example.com"}}
	c := narrow.open()
	c.CPU = intel
	_, err = take(t.Context(), c, &neighbour{e: a}, id)
	wantError(t, err, sandbox.ErrUnsupported, "another network")

	two, wires := netHost(t)
	b := two.open()
	b.CPU = intel
	_, err = take(t.Context(), b, &neighbour{e: a}, local)
	wantError(t, err, sandbox.ErrUnsupported, "ports of the host")
	forged := &neighbour{e: a, describe: func(h *sandbox.Handover) {
		h.Record = bytes.ReplaceAll(h.Record, []byte("example.com:443"), []byte(netpolicy.HostName+":44"))
	}}
	if _, err := take(t.Context(), b, forged, id); err == nil || forged.gave > 0 {
		t.Errorf("a forged policy is taken: %v", err)
	}
	if _, err := take(t.Context(), b, &neighbour{e: a}, id); err != nil {
		t.Fatal(err)
	}
	two.close(b)
	b = two.open()
	two.resume(b, id)
	bound := wires.of(id)
	if len(bound) != 1 || !slices.Equal(bound[0].Spec.Allow, policy.Allow) || bound[0].Spec.Limits.Flows != 8 {
		t.Errorf("at forkd-net: %+v", bound)
	}
}

// A tenant takes its own sandboxes only, within its quotas. It does not learn of others'.
func TestATenantsSandboxMoves(t *testing.T) {
	one, two := newHost(t), newHost(t)
	a, b := one.open(), two.open()
	b.CPU = intel
	one.makeUpper()
	one.snapshot(a, "x")
	quotas := keys.Quotas{Sandboxes: 1}
	as := func(e *Engine, tenant string) *tenancy.View {
		return tenancy.New(e.Roles(), tenancy.Config{Quotas: func(string) keys.Quotas { return quotas }}).For(
			principal.With(t.Context(), principal.Principal{KeyID: "k", Tenant: tenant}))
	}
	var ids []string
	for range 2 {
		r, err := a.Fork(t.Context(), sandbox.ForkRequest{Tag: "x", N: 1, Owner: "acme"})
		if err != nil || r.Children[0].Err != nil {
			t.Fatal(err, r)
		}
		ids = append(ids, r.Children[0].Info.ID)
		one.pause(a, r.Children[0].Info.ID)
	}
	_, err := as(b, "evil").Sandboxes.Take(t.Context(), sandbox.TakeRequest{ID: ids[0], From: &neighbour{e: a}})
	if err == nil || len(b.List()) != 0 {
		t.Errorf("another tenant: %v", err)
	}
	if _, err := as(a, "evil").Sandboxes.Handover(t.Context(), ids[0], sandbox.HandoverRequest{}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("another tenant: %v", err)
	}
	if _, err := as(b, "acme").Sandboxes.Take(t.Context(), sandbox.TakeRequest{ID: ids[0], From: &neighbour{e: a}}); err != nil {
		t.Fatal(err)
	}
	_, err = as(b, "acme").Sandboxes.Take(t.Context(), sandbox.TakeRequest{ID: ids[1], From: &neighbour{e: a}})
	wantError(t, err, sandbox.ErrQuota)
	if got := mustGet(t, a, ids[1]); got.Status != sandbox.StatusPaused {
		t.Errorf("%+v", got)
	}
	_, mine := as(a, "acme").Sandboxes.Get(ids[0])
	_, others := as(a, "evil").Sandboxes.Get(ids[0])
	if !strings.Contains(mine.Error(), "moved") || strings.Contains(others.Error(), "moved") {
		t.Errorf("%v, %v", mine, others)
	}
	two.resume(b, ids[0])
}

// A draining daemon gives sandboxes away, and does not take any.
func TestADrainAndAMove(t *testing.T) {
	_, _, a, b, sb := movePair(t)
	for _, e := range []*Engine{a, b} {
		if err := e.Drain.Start(drain.ModeWait, false); err != nil {
			t.Fatal(err)
		}
	}
	n := &neighbour{e: a}
	_, err := take(t.Context(), b, n, sb.ID)
	wantError(t, err, sandbox.ErrDraining)
	if n.gave != 0 {
		t.Error("it was given up")
	}
	if err := b.Drain.Cancel(); err != nil {
		t.Fatal(err)
	}
	if _, err := take(t.Context(), b, n, sb.ID); err != nil {
		t.Error(err)
	}
}

// Records of moves are forgotten after their time.
func TestOldMovesAreForgotten(t *testing.T) {
	one, two := newHost(t), newHost(t)
	now := time.Now()
	one.cfg.Now = func() time.Time { return now }
	a, b := one.open(), two.open()
	b.CPU = intel
	var ids []string
	for _, sb := range one.disky(a, 2) {
		ids = append(ids, one.pause(a, sb.ID).ID)
	}
	for _, id := range ids {
		if _, err := take(t.Context(), b, &neighbour{e: a}, id); err != nil {
			t.Fatal(err)
		}
		now = now.Add(31 * 24 * time.Hour)
	}
	if _, err := os.Stat(filepath.Join(one.cfg.StoreDir, "paused", ids[0]+".json")); err == nil {
		t.Error("the first record is still there")
	}
	_, err := a.Get(ids[1])
	wantError(t, err, sandbox.ErrNotFound, "was moved")
}
