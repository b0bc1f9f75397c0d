package catalog_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// flipBit changes one bit of a layer's content.
func flipBit(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at, err := unix.Seek(int(f.Fd()), layer.ContentOffset, unix.SEEK_DATA)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

func damageOf(t *testing.T, e *engine.Engine, tag string) string {
	t.Helper()
	s, err := e.SnapshotInfo(t.Context(), tag)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(s.Damaged, " ")
}

// One flipped bit in a layer of memory or of a disk is found. It marks every snapshot that needs
// the layer, and prevents forks, branches, copies and rollbacks of them, also under the next
// daemon. Other snapshots are not affected.
func TestTheScrubFindsAFlippedBit(t *testing.T) {
	for _, disk := range []bool{false, true} {
		h := enginefake.NewHost(t)
		h.Cfg.ScrubInterval = 50 * time.Millisecond
		e := h.Open()
		sb := h.Disky(e, 1)[0]
		if err := h.Branch(e, sb.ID, "x"); err != nil {
			t.Fatal(err)
		}
		h.Snapshot(e, "other")
		enginefake.Eventually(t, "first check", func() bool {
			for _, tag := range []string{"d", "x", "other"} {
				if s, err := e.SnapshotInfo(t.Context(), tag); err != nil || s.VerifiedAt.IsZero() || len(s.Damaged) > 0 {
					return false
				}
			}
			return true
		})
		manifest := h.Manifest("d")
		id := manifest.Memory.Layers[0]
		if disk {
			id = manifest.Disks[1].Layers[0]
		}
		flipBit(t, enginefake.Layers(h).Path(id))
		enginefake.Eventually(t, "damage", func() bool { return damageOf(t, e, "d") != "" && damageOf(t, e, "x") != "" })
		for range 2 {
			for _, tag := range []string{"d", "x"} {
				_, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: tag, N: 1})
				enginefake.WantError(t, err, storeerr.ErrNotRestorable, snapshot.LayerFile(id), "changed since it was written", "snapshot "+tag)
				_, err = e.CompactSnapshot(t.Context(), tag, "laundered", nil)
				enginefake.WantError(t, err, storeerr.ErrNotRestorable)
				if s, err := e.SnapshotInfo(t.Context(), tag); err != nil || s.Status != sandbox.SnapshotFailed || !strings.Contains(s.Warning, "damaged") {
					t.Errorf("%s: %+v, %v", tag, s, err)
				}
			}
			enginefake.WantError(t, h.Branch(e, sb.ID, "y"), storeerr.ErrNotRestorable)
			_, err := e.Rollback(t.Context(), sb.ID, "d")
			enginefake.WantError(t, err, storeerr.ErrNotRestorable)
			h.Fork(e, "other", 1)
			h.Close(e)
			h.Cfg.ScrubInterval = 0
			e = h.Open()
		}
		flipBit(t, enginefake.Layers(h).Path(id)) // correct again
		for _, tag := range []string{"d", "x"} {
			if r, err := e.VerifySnapshot(t.Context(), tag); err != nil || !r.OK() {
				t.Errorf("verify: %+v, %v", r, err)
			}
			h.Fork(e, tag, 1)
		}
		flipBit(t, enginefake.Layers(h).Path(id))
		if r, err := e.VerifySnapshot(t.Context(), "d"); err != nil || r.OK() {
			t.Errorf("verify: %+v, %v", r, err)
		}
		if damageOf(t, e, "d") == "" || damageOf(t, e, "x") == "" {
			t.Error("what a verification finds is not noted")
		}
	}
}
