package crash

import (
	"context"
	"slices"
	"syscall"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// groupSteps are the steps of a fork of a group at which the daemon is killed. TestKills has the others.
var groupSteps = []failpoint.Step{failpoint.CapturePaused, failpoint.GroupCaptured, failpoint.GroupNetworks,
	failpoint.ForkConfirmed, failpoint.GroupForked}

// groupWorld is a world with forkd-net.
func groupWorld(t *testing.T) *world {
	w := newWorld(t, func(d *harness.Daemon) {
		if err := d.WithNet(t); err != nil {
			t.Fatal(err)
		}
	})
	w.clean()
	if _, err := w.d.Client.PrivateNetworks().Create(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	w.removeNetworks()
	w.names = w.rest() // with the file of the networks
	return w
}

// shop makes a network of two marked members.
func (w *world) shop() (members []api.SandboxInfo, marks []string) {
	w.t.Helper()
	if _, err := w.d.Client.PrivateNetworks().Create(w.t.Context(), "shop"); err != nil {
		w.t.Fatal(err)
	}
	for _, alias := range []string{"db", "web"} {
		n := 1
		r, err := w.d.Client.Fork(w.t.Context(), api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n,
			NetJoin: &api.NetJoin{Network: "shop", Alias: alias}})
		if err != nil || len(r.OK()) != 1 {
			w.t.Fatalf("fork %s: %+v, %v", alias, r, err)
		}
		members = append(members, r.Sandboxes[0])
		marks = append(marks, w.mark(r.Sandboxes[0].ID))
	}
	return members, marks
}

func (w *world) removeNetworks() {
	w.t.Helper()
	list, err := w.d.Client.PrivateNetworks().List(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range list {
		if err := w.d.Client.PrivateNetworks().Remove(context.Background(), n.Name); err != nil {
			w.t.Error(err)
		}
	}
}

func forkShop(c *client.Client) error {
	n := 2
	_, err := c.PrivateNetworks().Fork(context.Background(), "shop", api.ForkGroupRequest{N: &n})
	return err
}

// nothingHalfMade checks that only the members and their network are left.
func (w *world) nothingHalfMade(members []api.SandboxInfo) {
	w.t.Helper()
	list, err := w.d.Client.ListSandboxes(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range list {
		if !slices.ContainsFunc(members, func(m api.SandboxInfo) bool { return m.ID == s.ID }) {
			w.t.Errorf("left over: sandbox %s, %s", s.ID, s.Status)
		}
	}
	nets, err := w.d.Client.PrivateNetworks().List(w.t.Context())
	if err != nil || len(nets) != 1 {
		w.t.Errorf("the networks are %+v, %v", nets, err)
	}
	w.eventually("removal of the snapshots", func() bool {
		list, err := w.d.Client.ListSnapshots(w.t.Context())
		return err == nil && len(list) == 1
	})
}

// A fork of a group is complete or without a trace when the daemon is killed, and the members run on.
func TestKillsInAGroupFork(t *testing.T) {
	kvmtest.Drawn(t)
	random := kvmtest.Random(kvmtest.Seed(t), 2)
	w := groupWorld(t)
	for _, s := range groupSteps {
		if !chosen(random) && s != groupSteps[0] {
			continue
		}
		w.sub(string(s), func() {
			w.begin()
			members, marks := w.shop()
			w.arm(s)
			defer w.disarm(s)
			ended := make(chan error, 1)
			go func() { ended <- forkShop(w.d.Client) }()
			w.reached(s)
			w.d.End(syscall.SIGKILL)
			if err := <-ended; err == nil {
				t.Error("the caller was told of success before the step")
			}
			w.disarm(s)
			w.start()
			for i, m := range members {
				w.lives(m, marks[i])
			}
			w.nothingHalfMade(members)
			if err := forkShop(w.d.Client); err != nil {
				t.Errorf("fork again: %v", err)
			}
			w.clean()
			w.removeNetworks()
			w.nothingLeft()
		})
	}
}

// A member is killed while the others are paused for the cut: they run on, and no copy is made.
func TestAMemberIsKilledInACut(t *testing.T) {
	kvmtest.Drawn(t)
	w := groupWorld(t)
	members, marks := w.shop()
	w.arm(failpoint.CapturePaused)
	defer w.disarm(failpoint.CapturePaused)
	ended := make(chan error, 1)
	go func() { ended <- forkShop(w.d.Client) }()
	w.reached(failpoint.CapturePaused)
	if !w.d.KillProcess(*members[0].PID) {
		t.Fatal("the member has ended before")
	}
	w.disarm(failpoint.CapturePaused)
	if err := <-ended; client.CodeOf(err) != api.CodeGuestGone {
		t.Errorf("the fork ends with %v, want guest_gone", err)
	}
	w.failed(members[0].ID)
	w.lives(members[1], marks[1])
	w.nothingHalfMade(members)
	w.clean()
	w.removeNetworks()
	w.nothingLeft()
}
