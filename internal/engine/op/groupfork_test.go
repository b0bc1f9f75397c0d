package op_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/leaf/failpoint"
)

// shop is a host with a network of two members.
func shop(t *testing.T) (h *enginefake.Host, n *enginefake.Net, e *engine.Engine, db, web sandbox.Info) {
	h, n = enginefake.NetHost(t)
	e = h.Open()
	h.Snapshot(e, "a")
	if _, err := e.TenantNetworks().Create("", "shop"); err != nil {
		t.Fatal(err)
	}
	return h, n, e, joined(h, e, "a", "shop", "db"), joined(h, e, "a", "shop", "web")
}

// unchangedShop checks that a failed fork of the group has left its members only.
func unchangedShop(t *testing.T, e *engine.Engine, ids ...string) {
	t.Helper()
	for _, s := range e.List() {
		if s.Status != sandbox.StatusRunning || !slices.Contains(ids, s.ID) {
			t.Errorf("sandbox %s is %s, of %v", s.ID, s.Status, ids)
		}
	}
	if all := e.TenantNetworks().List(""); len(all) != 1 || len(all[0].Members) != len(ids) {
		t.Errorf("the networks are %+v", all)
	}
	enginefake.Eventually(t, "removal of the snapshots", func() bool {
		list, err := e.ListSnapshots(t.Context())
		return err == nil && len(list) == 1
	})
}

func TestAGroupIsForkedAsAWhole(t *testing.T) {
	h, n, e, db, web := shop(t)
	if _, err := e.TenantNetworks().Create("", "shop-1"); err != nil { // a name that is taken
		t.Fatal(err)
	}
	admitted := 0
	r, err := e.ForkGroup(t.Context(), sandbox.GroupForkRequest{Network: "shop", N: 2,
		Admit: func(sandboxes, _ int) (func(), error) { admitted = sandboxes; return func() {}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if admitted != 4 || len(r.Copies) != 2 || r.Pause == 0 {
		t.Errorf("%d sandboxes were admitted, and the result is %+v", admitted, r)
	}
	for i, c := range r.Copies {
		if name := []string{"shop-2", "shop-3"}[i]; c.Err != nil || c.Network != name || len(c.Sandboxes) != 2 {
			t.Fatalf("copy %d is %+v, want network %s", i, c, name)
		}
		for k, of := range []sandbox.Info{db, web} {
			got, was := c.Sandboxes[k], *of.Network.Member
			m := *got.Network.Member
			if m.Alias != was.Alias || m.Addr != was.Addr || m.NetworkID == was.NetworkID || got.BranchedFrom != of.ID {
				t.Errorf("the copy of %+v is %+v, of %s", was, m, got.BranchedFrom)
			}
			wantMember(t, n, got.ID, m)
		}
	}
	joined(h, e, "a", "shop-2", "third") // it is a network like others
	for _, c := range r.Copies {
		for _, s := range c.Sandboxes {
			if err := e.Kill(t.Context(), s.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := e.TenantNetworks().Remove("", "shop-3"); err != nil {
		t.Error(err)
	}
	enginefake.Eventually(t, "removal of the snapshots", func() bool {
		list, err := e.ListSnapshots(t.Context())
		return err == nil && len(list) == 1
	})
}

func TestGroupsThatCannotBeForked(t *testing.T) {
	_, _, e, db, web := shop(t)
	nets := e.TenantNetworks()
	if _, err := nets.Create("acme", "theirs"); err != nil {
		t.Fatal(err)
	}
	full := errors.New("the quota is used up")
	for name, c := range map[string]struct {
		req  sandbox.GroupForkRequest
		want error
	}{
		"another tenant's":   {sandbox.GroupForkRequest{Network: "theirs", N: 1}, sandbox.ErrNotFound},
		"none":               {sandbox.GroupForkRequest{Network: "shop"}, sandbox.ErrInvalid},
		"too many":           {sandbox.GroupForkRequest{Network: "shop", N: sandbox.MaxGroupCopies + 1}, sandbox.ErrInvalid},
		"too many networks":  {sandbox.GroupForkRequest{Network: "shop", N: sandbox.MaxGroupCopies, Prefix: "x"}, nil},
		"an impossible name": {sandbox.GroupForkRequest{Network: "shop", N: 1, Prefix: "a/b"}, sandbox.ErrInvalid},
		"over the quota": {sandbox.GroupForkRequest{Network: "shop", N: 1,
			Admit: func(int, int) (func(), error) { return nil, full }}, full},
	} {
		if c.want == nil { // with the one that exists, and another
			if _, err := nets.Create("", "other"); err != nil {
				t.Fatal(err)
			}
			c.want = sandbox.ErrQuota
		}
		if _, err := e.ForkGroup(t.Context(), c.req); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if err := nets.Remove("", "other"); err != nil {
		t.Fatal(err)
	}
	unchangedShop(t, e, db.ID, web.ID)
	for _, s := range []sandbox.Info{db, web} {
		if _, err := e.Pause(t.Context(), s.ID, sandbox.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.ForkGroup(t.Context(), sandbox.GroupForkRequest{Network: "shop", N: 1}); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("a network of paused sandboxes: %v", err)
	}
}

func TestAMemberThatFailsInACut(t *testing.T) {
	for fault, text := range map[string]string{"capture-fail": "KVM said no", "capture-lies": "older forkd",
		"captured-fail": "branch "} {
		t.Run(fault, func(t *testing.T) {
			h, _, e, db, web := shop(t)
			h.Fault(fault, 1)
			_, err := e.ForkGroup(t.Context(), sandbox.GroupForkRequest{Network: "shop", N: 1})
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("the error is %v, want %s", err, text)
			}
			unchangedShop(t, e, db.ID, web.ID)
			if r, err := e.ForkGroup(t.Context(), sandbox.GroupForkRequest{Network: "shop", N: 1}); err != nil || r.Copies[0].Err != nil {
				t.Errorf("the next fork: %+v, %v", r, err)
			}
		})
	}
}

func TestAMemberKilledInACut(t *testing.T) {
	h, _, e, db, web := shop(t)
	h.Fault("capture-hang", 1)
	cut := make(chan error, 1)
	go func() {
		_, err := e.ForkGroup(t.Context(), sandbox.GroupForkRequest{Network: "shop", N: 1})
		cut <- err
	}()
	enginefake.Eventually(t, "a capture that hangs", func() bool {
		left, _ := filepath.Glob(filepath.Join(h.Cfg.RunDir, "fake", "capture-hang.*"))
		return len(left) == 0
	})
	if err := syscall.Kill(db.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(web.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-cut; !errors.Is(err, sandbox.ErrGuestGone) {
		t.Errorf("the fork ends with %v", err)
	}
}

// A copy lacks a sandbox: the others of the same copy end, and other copies are not affected.
func TestACopyIsWholeOrAbsent(t *testing.T) {
	h, _, e, _, _ := shop(t)
	h.Fault("identity-clone", 1)
	r, err := e.ForkGroup(t.Context(), sandbox.GroupForkRequest{Network: "shop", N: 2})
	if err != nil {
		t.Fatal(err)
	}
	whole := 0
	for _, c := range r.Copies {
		if c.Err == nil {
			whole++
		}
	}
	if all := e.TenantNetworks().List(""); whole != 1 || len(all) != 2 || len(e.List()) != 4 {
		t.Errorf("%d copies are whole, of %+v; the networks are %+v", whole, r, all)
	}
	h.Fault("restore-fail", 1)
	if _, err := e.ForkGroup(t.Context(), sandbox.GroupForkRequest{Network: "shop", N: 1}); err == nil {
		t.Error("a copy that cannot be restored is made")
	}
	if len(e.List()) != 4 {
		t.Errorf("after it %d sandboxes are listed", len(e.List()))
	}
}

func TestTheNextDaemonEndsAnIncompleteCopy(t *testing.T) {
	h, _, e, db, web := shop(t)
	if _, err := e.ForkGroup(t.Context(), sandbox.GroupForkRequest{Network: "shop", N: 2}); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(h.Cfg.StoreDir, "networks.json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"shop-1", "shop-2"} {
		old := []byte(`"name": "` + name + `",`)
		if !bytes.Contains(b, old) {
			t.Fatalf("%s lacks %s", b, old)
		}
		b = bytes.ReplaceAll(b, old, append(old, `"forming": true,`...))
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	e = h.Open()
	unchangedShop(t, e, db.ID, web.ID)
}

// Sandboxes join a copy only when it is complete.
func TestACopyInTheMaking(t *testing.T) {
	_, _, e, _, _ := shop(t)
	var joined, forked error
	defer failpoint.Set(func(s failpoint.Step) error {
		if s == failpoint.GroupForked {
			_, joined = e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Join: &sandbox.NetJoin{Network: "shop-1"}})
			_, forked = e.ForkGroup(t.Context(), sandbox.GroupForkRequest{Network: "shop-1", N: 1})
		}
		return nil
	})()
	if _, err := e.ForkGroup(t.Context(), sandbox.GroupForkRequest{Network: "shop", N: 1}); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(joined, sandbox.ErrConflict) || !errors.Is(forked, sandbox.ErrConflict) {
		t.Errorf("a join has %v, and a fork of it %v", joined, forked)
	}
}
