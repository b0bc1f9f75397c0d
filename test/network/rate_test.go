package network

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// rateMiB is in MiB per second. A transfer of rateSize takes two seconds, and without the limit a
// moment.
const (
	rateMiB  = 2
	rateSize = 4 << 20
)

// forkd-net limits a sandbox's rate in each direction. A child of a branch has the limit, too.
func TestABandwidthLimitHoldsForASandboxAndThoseOfItsBranch(t *testing.T) {
	kvmtest.Drawn(t)
	w := shared(t, "example.com")
	w.branch(t, w.guest, api.BranchRequest{Tag: "rate"})
	n := 1
	res, err := w.Client.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: "rate", N: &n,
		SandboxLimits: api.SandboxLimits{NetRateMiB: rateMiB}})
	if err != nil || res.Sandboxes[0].Error != "" {
		t.Fatalf("%+v, %v", res, err)
	}
	id := res.Sandboxes[0].ID
	t.Cleanup(func() {
		if err := w.Kill(id); err != nil {
			t.Error(err)
		}
	})
	w.heldTo(t, id)
	w.heldTo(t, w.branch(t, id, api.BranchRequest{N: 1, Tag: "rate-child"})[0].ID)
	t.Run("of a tree", w.treeHeldTo)

	list, err := w.Client.ListSandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range list {
		if sb.ID == id && (sb.Use == nil || sb.Use.NetInBytes < rateSize || sb.Use.NetOutBytes < rateSize ||
			sb.Use.NetLimitBytes != rateMiB<<20) {
			t.Errorf("listed with %+v", sb.Use)
		}
	}
}

// treeHeldTo checks that a tree of forks shares one rate, including children forked by the next
// daemon.
func (w *world) treeHeldTo(t *testing.T) {
	n := 1
	res, err := w.Client.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: "rate", N: &n, GuestFork: true,
		SandboxLimits: api.SandboxLimits{TreeNetRateMiB: rateMiB}})
	if err != nil || res.Sandboxes[0].Error != "" {
		t.Fatalf("%+v, %v", res, err)
	}
	root := source{world: w, id: res.Sandboxes[0].ID}
	t.Cleanup(func() {
		if err := w.Client.Kill(context.Background(), root.id, client.KillTree); err != nil {
			t.Error(err)
		}
	})
	child := root.guestFork(t)
	w.End(syscall.SIGKILL)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	w.heldTo(t, child, root.guestFork(t))
}

// heldTo makes sandboxes with a shared rate each send and then receive rateSize.
func (w *world) heldTo(t *testing.T, ids ...string) {
	t.Helper()
	began := time.Now()
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			r, err := w.Client.Eval(t.Context(), id, api.EvalRequest{TimeoutSecs: patience.Seconds(),
				Code: fmt.Sprintf(`bulk("example.com", %s, %d) == {"up": True, "down": True}`, bulkPort, rateSize)})
			if err != nil || r.Error != nil || r.Result == nil || *r.Result != "True" {
				t.Errorf("%s: %+v, %v", id, r, err)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	// All send, and at least the last one receives after that. Each direction allows a burst of a
	// quarter of a second, and a chunk may be in transit.
	if least := time.Duration((len(ids)+1)*rateSize/(rateMiB<<20)-1) * time.Second; took < least {
		t.Errorf("%d MiB each way of %d took %s, want at least %s", rateSize>>20, len(ids), took, least)
	}
	t.Logf("%d MiB each way of %d in %s", rateSize>>20, len(ids), took.Round(time.Millisecond))
}
