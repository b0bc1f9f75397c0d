package network

import (
	"fmt"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
)

// rateMiB is MiB a second; what goes each way takes two seconds, and without the limit a moment.
const (
	rateMiB  = 2
	rateSize = 4 << 20
)

// A sandbox is held to its rate each way, by forkd-net, and a child of a branch has it, too.
func TestABandwidthLimitHoldsForASandboxAndThoseOfItsBranch(t *testing.T) {
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

// heldTo has a sandbox send rateSize and then receive as much.
func (w *world) heldTo(t *testing.T, id string) {
	t.Helper()
	began := time.Now()
	intact := value[struct{ Up, Down bool }](t, w, id, fmt.Sprintf(`bulk("example.com", %s, %d)`, bulkPort, rateSize))
	took := time.Since(began)
	if !intact.Up || !intact.Down {
		t.Errorf("intact: %+v", intact)
	}
	// A quarter of a second is the burst, and a chunk may be under way.
	if least := (2*rateSize/(rateMiB<<20) - 1) * time.Second; took < least {
		t.Errorf("%d MiB each way took %s, want at least %s", rateSize>>20, took, least)
	}
	t.Logf("%d MiB each way in %s", rateSize>>20, took.Round(time.Millisecond))
}
