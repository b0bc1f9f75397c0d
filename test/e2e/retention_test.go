package e2e

import (
	"fmt"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// Of three branches of a sandbox the last two stay, and then only the one that a fork needs. The forks of the newest
// remember what the removed ones had.
func TestTheLastBranchesStay(t *testing.T) {
	d := shared(t)
	id := d.oneSandbox()
	for i := range 3 {
		d.remember(id, fmt.Sprint("branch ", i))
		d.branch(id, api.BranchRequest{Tag: fmt.Sprint("keep-", i), Labels: map[string]string{"forkd.keep-last": "2"}})
	}
	dry, err := client.PruneSnapshots(t.Context(), d.c, true)
	if err != nil || len(dry.Snapshots) != 1 || dry.Snapshots[0].Tag != "keep-0" || dry.Snapshots[0].Held != "" {
		t.Fatalf("due: %+v, %v", dry, err)
	}
	r, err := client.PruneSnapshots(t.Context(), d.c, false)
	if err != nil || len(r.Snapshots) != 1 || r.Snapshots[0].Held != "" || r.Bytes != dry.Bytes {
		t.Fatalf("removed: %+v, %v; the dry run had %+v", r, err, dry)
	}
	if _, err := d.c.Snapshot(t.Context(), "keep-0"); !client.IsNotFound(err) {
		t.Errorf("keep-0 is still there: %v", err)
	}
	child := d.forkOf("keep-2", 1)[0].ID
	d.remembers(child, "branch 2")
	for _, tag := range []string{"keep-1", "keep-2"} {
		if _, err := client.ExpireSnapshot(t.Context(), d.c, tag, "2020-01-01T00:00:00Z"); err != nil {
			t.Fatal(err)
		}
	}
	r, err = client.PruneSnapshots(t.Context(), d.c, false)
	if err != nil || len(r.Snapshots) != 2 || r.Snapshots[0].Held != "" || r.Snapshots[1].Held == "" {
		t.Fatalf("removed: %+v, %v", r, err)
	}
	d.remembers(child, "branch 2")
	d.kill(child)
	if err := d.c.DeleteSnapshot(t.Context(), "keep-2", client.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}
