package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// A sandbox's snapshot is deleted by force. The sandbox can still be branched in every mode, its
// branches can be forked, its guest can fork it, and it can be rolled back, also by the next
// daemon.
func TestASandboxOutlivesItsSnapshot(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	d.small() // it must exist before unchanged
	d.unchanged()
	d.damaged(d.small(), "doomed", func(string) {})
	n := 1
	sb := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: "doomed", N: &n, GuestFork: true}).OK()[0]
	d.sh(sb.ID, "echo kept > /root/note")
	if err := d.c.DeleteSnapshot(t.Context(), "doomed", client.DeleteOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	branch := func(tag string, mode api.BranchMode) {
		t.Helper()
		if _, err := d.c.Branch(t.Context(), sb.ID, api.BranchRequest{Tag: tag, Mode: mode}); err != nil {
			t.Fatalf("branch %s: %v", tag, err)
		}
		t.Cleanup(func() {
			if err := d.c.DeleteSnapshot(context.Background(), tag, client.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
		for _, child := range d.forkSome(api.CreateSandboxesRequest{SnapshotTag: tag, N: &n}).OK() {
			if got := d.sh(child.ID, "cat /root/note"); got != "kept" {
				t.Errorf("the child of %s says %q", tag, got)
			}
			if err := d.c.Kill(t.Context(), child.ID); err != nil {
				t.Error(err)
			}
		}
	}
	branch("kept-live", api.BranchLive)
	d.end(syscall.SIGTERM)
	d.start()
	branch("kept-diff", api.BranchDiff)
	branch("kept-full", api.BranchFull)
	if out := strings.Fields(d.sh(sb.ID, "forkd-fork 1")); len(out) != 2 || out[0] != "0" {
		t.Errorf("forkd-fork printed %q", out)
	}
	for _, other := range d.tree(t, sb.ID) {
		if other.ID == sb.ID {
			continue
		}
		if err := d.c.Kill(t.Context(), other.ID); err != nil {
			t.Error(err)
		}
	}
	d.sh(sb.ID, "echo later > /root/note")
	if _, err := d.c.Rollback(t.Context(), sb.ID, "kept-live"); err != nil {
		t.Fatal(err)
	}
	if got := d.sh(sb.ID, "cat /root/note"); got != "kept" {
		t.Errorf("after the rollback it says %q", got)
	}
	eventually(t, "removal of what was kept", func() bool {
		kept, _ := filepath.Glob(filepath.Join(d.store(), ".retired-*"))
		return len(kept) == 0
	})
	if err := d.c.Kill(t.Context(), sb.ID); err != nil { // it needs kept-live now
		t.Error(err)
	}
}

// The scrub finds a flipped bit in a layer, and the snapshot cannot be forked.
func TestTheScrubFindsDamage(t *testing.T) {
	t.Parallel()
	kvmtest.Require(t)
	kvmtest.Drawn(t)
	d := secondDaemon(t) // it has few layers, so all are scrubbed repeatedly
	d.Flags = []string{"--scrub-interval", "200ms", "--pool", "0"}
	if err := linkedImage(t, d.images(), "box"); err != nil {
		t.Fatal(err)
	}
	d.start()
	if _, err := d.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "parent", Image: "box"}, nil); err != nil {
		t.Fatal(err)
	}
	layer := d.compacted("parent", "rotten")
	d.hashed("rotten")
	row := func() string {
		_, out, _ := d.cli("snapshot", "ls")
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "rotten ") {
				return line
			}
		}
		return ""
	}
	eventually(t, "first check", func() bool { return strings.Contains(row(), " ago") })
	damageLayer(t, layer)
	eventually(t, "damage in `snapshot ls`", func() bool { return strings.Contains(row(), "damaged") })
	d.refused("rotten", "layers/"+filepath.Base(layer), "changed since it was written")
	info, err := d.c.Snapshot(t.Context(), "rotten")
	if err != nil || info.Bootable || len(info.Damaged) != 1 || info.VerifiedAtUnix == nil || time.Since(time.Unix(*info.VerifiedAtUnix, 0)) > time.Hour {
		t.Errorf("got %+v, %v", info, err)
	}
}
