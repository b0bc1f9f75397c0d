package oracle

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/test/harness"
)

// tooShort is a pause limit in ms that no branch can meet.
const tooShort = 0.001

// A branch with a limit that lets it end its rounds immediately follows a branch with rounds. It
// must still contain every private dirty page of the source.
func TestALaterBranchWithALargerPauseLimit(t *testing.T) {
	d := daemon(t)
	t.Cleanup(func() { clean(t, d) })
	for _, c := range []struct {
		name   string
		limits []float64 // of the branches, in ms; 0 means no limit
	}{
		{"none, then 300 ms", []float64{0, 300}},
		{"one that cannot be kept, then 300 ms as the error says", []float64{tooShort, 300}},
	} {
		t.Run(c.name, func(t *testing.T) {
			source := &guest{id: d.Fork(t, parentTag, 1)[0].ID}
			source.fill(t, d, 2<<10)
			for i, limit := range c.limits {
				source.leave(t, d, i+1)
				source.branchWithin(t, d, limit)
			}
		})
	}
}

// branchWithin branches a guest. The child must have its own identity and the source's state.
func (g *guest) branchWithin(t *testing.T, d *harness.Daemon, limit float64) {
	t.Helper()
	res, err := d.Client.Branch(t.Context(), g.id, api.BranchRequest{MaxPauseMS: limit, N: 1})
	if limit == tooShort {
		if client.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "pause") {
			t.Fatalf("a pause that is too short: %v, want a conflict", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.0f ms: %d rounds, %d bytes", limit, res.Rounds, res.BytesWritten)
	child := res.Children[0]
	if child.Error != "" {
		t.Fatalf("the child of a branch within %.0f ms: %s", limit, child.Error)
	}
	g.copyAs(child.ID, "").answers(t, d)
}
