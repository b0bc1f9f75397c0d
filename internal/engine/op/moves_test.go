package op_test

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
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/store/hub"
)

// neighbour is another engine in this process, as a taker sees it. Its functions change what it says.
type neighbour struct {
	e        *engine.Engine
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

func take(ctx context.Context, to *engine.Engine, from *neighbour, id string) (sandbox.Info, error) {
	return to.Take(ctx, sandbox.TakeRequest{ID: id, From: from, Node: "node-b",
		Again: func(string) (sandbox.Giver, error) { return from, nil }})
}

// movePair returns two daemons, and a paused sandbox of the first.
func movePair(t *testing.T) (one, two *enginefake.Host, a, b *engine.Engine, sb sandbox.Info) {
	t.Helper()
	one, two = enginefake.NewHost(t), enginefake.NewHost(t)
	a, b = one.Open(), two.Open()
	b.CPU = intel
	sb = one.Disky(a, 1)[0]
	one.Eval(a, sb.ID, "x = 41")
	return one, two, a, b, one.Pause(a, sb.ID)
}

// A paused sandbox goes on at another daemon as itself, and comes back.
func TestASandboxMoves(t *testing.T) {
	one, two, a, b, sb := movePair(t)
	a.CPU = intel
	var before sandboxes.Record
	if err := vmproc.ReadJSON(filepath.Join(one.Cfg.StoreDir, "paused", sb.ID+".json"), &before); err != nil {
		t.Fatal(err)
	}
	if _, err := take(t.Context(), b, &neighbour{e: a}, sb.ID); err != nil {
		t.Fatal(err)
	}
	if got := enginefake.MustGet(t, b, sb.ID); got.Status != sandbox.StatusPaused || got.Owner != sb.Owner {
		t.Errorf("taken: %+v", got)
	}
	_, err := a.Get(sb.ID)
	enginefake.WantError(t, err, sandbox.ErrNotFound, "was moved to node node-b")
	enginefake.WantError(t, enginefake.ErrorOf(a.Resume(t.Context(), sb.ID)), sandbox.ErrNotFound, "was moved")
	enginefake.WantError(t, a.Kill(t.Context(), sb.ID), sandbox.ErrNotFound, "was moved")
	enginefake.Eventually(t, "the giver's snapshot is deleted", func() bool { return len(pauses(one)) == 0 })
	two.Resume(b, sb.ID)
	isItself(two, b, sb.ID, 2)
	if _, got := two.Journal(sb.ID); got.Who.MachineID != before.Who.MachineID || got.Who.MachineID == "" {
		t.Errorf("the machine is %q, and was %q", got.Who.MachineID, before.Who.MachineID)
	}
	enginefake.WantError(t, enginefake.ErrorOf(a.Handover(t.Context(), sb.ID, sandbox.HandoverRequest{})), sandbox.ErrNotFound, "was moved")

	// A restart of the giver makes no difference.
	one.Close(a)
	a = one.Open()
	a.CPU = intel
	_, err = a.Get(sb.ID)
	enginefake.WantError(t, err, sandbox.ErrNotFound, "was moved to node node-b")

	two.Pause(b, sb.ID)
	if _, err := take(t.Context(), a, &neighbour{e: b}, sb.ID); err != nil {
		t.Fatal(err)
	}
	one.Resume(a, sb.ID)
	isItself(one, a, sb.ID, 2)
	if names := pausedRecords(one); names != "" {
		t.Errorf("records at the first daemon: %s", names)
	}
	if err := a.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "no snapshots", func() bool { return len(pauses(one))+len(pauses(two)) == 0 })
}

// A giver's answer is lost. The sandbox has no other owner meanwhile, and the claim is repeated.
func TestAGiftWithoutAnAnswer(t *testing.T) {
	one, two, a, b, sb := movePair(t)
	n := &neighbour{e: a, lost: sandbox.Errorf(sandbox.ErrNoResources, "", "connection reset")}
	_, err := take(t.Context(), b, n, sb.ID)
	enginefake.WantError(t, err, sandbox.ErrNoResources, "repeat the request")
	for e, want := range map[*engine.Engine]error{a: sandbox.ErrNotFound, b: sandbox.ErrNoResources} {
		if _, err := e.Get(sb.ID); !errors.Is(err, want) {
			t.Errorf("listed: %v", err)
		}
		enginefake.WantError(t, enginefake.ErrorOf(e.Resume(t.Context(), sb.ID)), want)
	}
	two.Close(b)
	b = two.Open()
	b.CPU = intel
	if tags := pauses(two); len(tags) != 1 {
		t.Errorf("the next daemon has kept %v", tags)
	}
	// That a giver does not know the sandbox by now is no proof: its address may be another daemon's.
	stranger := enginefake.NewHost(t).Open()
	_, err = take(t.Context(), b, &neighbour{e: stranger}, sb.ID)
	enginefake.WantError(t, err, sandbox.ErrNoResources, "repeat the request")

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
	two.Resume(b, sb.ID)
	isItself(two, b, sb.ID, 2)
	if len(pauses(one)) != 0 {
		t.Error("the giver has kept its snapshot")
	}
}

// The giver resumes the sandbox instead. It keeps the sandbox, and the taker drops its copy.
func TestAClaimThatIsRefused(t *testing.T) {
	one, two, a, b, sb := movePair(t)
	n := &neighbour{e: a, describe: func(*sandbox.Handover) {}}
	unset := failpoint.Set(func(s failpoint.Step) error {
		if s == failpoint.MoveAsked {
			one.Resume(a, sb.ID)
		}
		return nil
	})
	_, err := take(t.Context(), b, n, sb.ID)
	unset()
	enginefake.WantError(t, err, sandbox.ErrConflict)
	isItself(one, a, sb.ID, 2)
	if names := pausedRecords(two); names != "" || len(pauses(two)) != 0 {
		t.Errorf("the taker has kept %s %v", names, pauses(two))
	}
	_, err = take(t.Context(), b, n, sb.ID)
	enginefake.WantError(t, err, sandbox.ErrConflict, "pause it first")
	one.Pause(a, sb.ID)
	if _, err := take(t.Context(), b, n, sb.ID); err != nil {
		t.Error(err)
	}
}

// Of several takers one gets the sandbox.
func TestOneTakerWins(t *testing.T) {
	_, two, a, b, sb := movePair(t)
	three := enginefake.NewHost(t)
	c := three.Open()
	c.CPU = intel
	errs := make(chan error, 2)
	for _, e := range []*engine.Engine{b, c} {
		go func() { errs <- enginefake.ErrorOf(take(t.Context(), e, &neighbour{e: a}, sb.ID)) }()
	}
	first, second := <-errs, <-errs
	if (first == nil) == (second == nil) {
		t.Errorf("%v and %v", first, second)
	}
	if n := len(b.List()) + len(c.List()) + len(a.List()); n != 1 {
		t.Errorf("it is listed %d times", n)
	}
	enginefake.Eventually(t, "one snapshot", func() bool { return len(pauses(two))+len(pauses(three)) == 1 })
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
	enginefake.WantError(t, err, sandbox.ErrNotFound)
	if names := pausedRecords(two); names != "" || len(pauses(two)) != 0 || len(b.List()) != 0 {
		t.Errorf("the taker has kept %s %v", names, pauses(two))
	}
}

// doomedToMove is the work of two daemons that are killed at a step.
func doomedToMove(ctx context.Context, e *engine.Engine, taker engine.Config) error {
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
	b, err := engine.Open(ctx, taker)
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
			one, two := enginefake.NewHost(t), enginefake.NewHost(t)
			one.MakeUpper()
			enginefake.KillDaemonAt(one, "move", string(c.step), two)
			a, b := one.Open(), two.Open()
			b.CPU = intel
			id := soleID(t, one, two)
			at, bt := len(a.List()) == 1, len(b.List()) == 1
			if at != c.giver || bt != (c.step == failpoint.MoveTaken) {
				t.Fatalf("listed by the giver: %v, by the taker: %v", at, bt)
			}
			if c.step == failpoint.MoveCopied {
				enginefake.Eventually(t, "the copy without a claim is swept", func() bool { return len(pauses(two)) == 0 })
			}
			if !bt {
				want := sandbox.ErrNoResources // there is a claim
				if c.step == failpoint.MoveCopied {
					want = sandbox.ErrNotFound
				}
				enginefake.WantError(t, enginefake.ErrorOf(b.Resume(t.Context(), id)), want)
				if _, err := take(t.Context(), b, &neighbour{e: a}, id); err != nil {
					t.Fatal(err)
				}
			}
			if len(a.List()) != 0 || len(b.List()) != 1 {
				t.Errorf("then: %d and %d", len(a.List()), len(b.List()))
			}
			two.Resume(b, id)
			isItself(two, b, id, 2)
			enginefake.Eventually(t, "the giver's snapshot is deleted", func() bool { return len(pauses(one)) == 0 })
			if err := b.Kill(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			enginefake.Eventually(t, "nothing left", func() bool { return len(pauses(two)) == 0 && pausedRecords(two) == "" })
		})
	}
}

// soleID returns the id of the one sandbox with records.
func soleID(t *testing.T, hosts ...*enginefake.Host) (id string) {
	t.Helper()
	for _, h := range hosts {
		for _, name := range strings.Fields(pausedRecords(h)) {
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
	enginefake.WantError(t, err, sandbox.ErrNoResources)
	if err := b.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if names := pausedRecords(two); names != "" {
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
	if names := pausedRecords(two); names != "" || len(pauses(two)) != 0 {
		t.Errorf("the taker has kept %s %v", names, pauses(two))
	}
	if _, err := take(t.Context(), b, &neighbour{e: a}, sb.ID); err != nil {
		t.Error(err)
	}
}

// What binds a sandbox to its daemon is named, and the sandbox stays.
func TestABoundSandboxStays(t *testing.T) {
	one, _, a, b, sb := movePair(t)
	one.Resume(a, sb.ID)
	_, err := take(t.Context(), b, &neighbour{e: a}, sb.ID)
	enginefake.WantError(t, err, sandbox.ErrConflict, "pause it first")
	one.PauseBy(a, sb.ID, sandbox.PauseOptions{FilesystemOnly: true})
	_, err = take(t.Context(), b, &neighbour{e: a}, sb.ID)
	enginefake.WantError(t, err, sandbox.ErrUnsupported, "without its memory")
	one.Resume(a, sb.ID)
}

// A policy goes with its sandbox to a daemon that can enforce it unchanged.
func TestAPolicyMoves(t *testing.T) {
	one, _ := enginefake.NetHost(t)
	a := one.Open()
	one.MakeUpper()
	one.Snapshot(a, "x")
	policy := netpolicy.Spec{Allow: []string{"example.com:443"}, Limits: netpolicy.Limits{Flows: 8}}
	paused := func(p netpolicy.Spec) string {
		r, err := a.Fork(t.Context(), sandbox.ForkRequest{Tag: "x", N: 1, Network: &p, HostPorts: netpolicy.HostGrant{All: true}})
		if err != nil || r.Children[0].Err != nil {
			t.Fatal(err, r)
		}
		one.Pause(a, r.Children[0].Info.ID)
		return r.Children[0].Info.ID
	}
	id := paused(policy)
	local := paused(netpolicy.Spec{Allow: []string{netpolicy.HostName + ":80"}})

	without := enginefake.NewHost(t).Open()
	without.CPU = intel
	_, err := take(t.Context(), without, &neighbour{e: a}, id)
	enginefake.WantError(t, err, sandbox.ErrUnsupported, "no forkd-net")
	narrow, _ := enginefake.NetHost(t)
	narrow.Cfg.NetCeiling = &netpolicy.Spec{Default: netpolicy.Public, Deny: []string{"example.com"}}
	c := narrow.Open()
	c.CPU = intel
	_, err = take(t.Context(), c, &neighbour{e: a}, id)
	enginefake.WantError(t, err, sandbox.ErrUnsupported, "another network")

	two, wires := enginefake.NetHost(t)
	b := two.Open()
	b.CPU = intel
	_, err = take(t.Context(), b, &neighbour{e: a}, local)
	enginefake.WantError(t, err, sandbox.ErrUnsupported, "ports of the host")
	forged := &neighbour{e: a, describe: func(h *sandbox.Handover) {
		h.Record = bytes.ReplaceAll(h.Record, []byte("example.com:443"), []byte(netpolicy.HostName+":44"))
	}}
	if _, err := take(t.Context(), b, forged, id); err == nil || forged.gave > 0 {
		t.Errorf("a forged policy is taken: %v", err)
	}
	if _, err := take(t.Context(), b, &neighbour{e: a}, id); err != nil {
		t.Fatal(err)
	}
	two.Close(b)
	b = two.Open()
	two.Resume(b, id)
	bound := wires.Of(id)
	if len(bound) != 1 || !slices.Equal(bound[0].Spec.Allow, policy.Allow) || bound[0].Spec.Limits.Flows != 8 {
		t.Errorf("at forkd-net: %+v", bound)
	}
}

// A tenant takes its own sandboxes only, within its quotas. It does not learn of others'.
func TestATenantsSandboxMoves(t *testing.T) {
	one, two := enginefake.NewHost(t), enginefake.NewHost(t)
	a, b := one.Open(), two.Open()
	b.CPU = intel
	one.MakeUpper()
	one.Snapshot(a, "x")
	quotas := keys.Quotas{Sandboxes: 1}
	as := func(e *engine.Engine, tenant string) *tenancy.View {
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
		one.Pause(a, r.Children[0].Info.ID)
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
	enginefake.WantError(t, err, sandbox.ErrQuota)
	if got := enginefake.MustGet(t, a, ids[1]); got.Status != sandbox.StatusPaused {
		t.Errorf("%+v", got)
	}
	_, mine := as(a, "acme").Sandboxes.Get(ids[0])
	_, others := as(a, "evil").Sandboxes.Get(ids[0])
	if !strings.Contains(mine.Error(), "moved") || strings.Contains(others.Error(), "moved") {
		t.Errorf("%v, %v", mine, others)
	}
	two.Resume(b, ids[0])
}

// A draining daemon gives sandboxes away, and does not take any.
func TestADrainAndAMove(t *testing.T) {
	_, _, a, b, sb := movePair(t)
	for _, e := range []*engine.Engine{a, b} {
		if err := e.Drain.Start(drain.ModeWait, false); err != nil {
			t.Fatal(err)
		}
	}
	n := &neighbour{e: a}
	_, err := take(t.Context(), b, n, sb.ID)
	enginefake.WantError(t, err, sandbox.ErrDraining)
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
	one, two := enginefake.NewHost(t), enginefake.NewHost(t)
	now := time.Now()
	one.Cfg.Now = func() time.Time { return now }
	a, b := one.Open(), two.Open()
	b.CPU = intel
	var ids []string
	for _, sb := range one.Disky(a, 2) {
		ids = append(ids, one.Pause(a, sb.ID).ID)
	}
	for _, id := range ids {
		if _, err := take(t.Context(), b, &neighbour{e: a}, id); err != nil {
			t.Fatal(err)
		}
		now = now.Add(31 * 24 * time.Hour)
	}
	if _, err := os.Stat(filepath.Join(one.Cfg.StoreDir, "paused", ids[0]+".json")); err == nil {
		t.Error("the first record is still there")
	}
	_, err := a.Get(ids[1])
	enginefake.WantError(t, err, sandbox.ErrNotFound, "was moved")
}
