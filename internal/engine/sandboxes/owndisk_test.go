package sandboxes_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

func TestChildrenHaveDisksOfTheirOwn(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	seen := map[string]bool{}
	children := h.Disky(e, 3)
	for _, c := range children {
		lines := strings.Split(h.ReadOverlay(c.ID), "\n")
		if len(lines) != 3 || lines[2] != "empty" || lines[1] == lines[0] || seen[lines[0]] {
			t.Errorf("%s sees %q, want itself, its parent and the image", c.ID, lines)
		}
		seen[lines[0]] = true
	}
	info, err := e.SnapshotInfo(t.Context(), "d")
	if err != nil || info.Shape.Disks != 2 {
		t.Errorf("the snapshot has %d disks, %v", info.Shape.Disks, err)
	}
	for _, c := range children {
		if err := e.Kill(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
	}
	if left := h.OverlayFiles(); left != "" {
		t.Errorf("killed sandboxes have left %q", left)
	}
}

func TestOwnDisksOutliveTheDaemon(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	child := h.Disky(e, 1)[0]
	before := h.ReadOverlay(child.ID)
	h.Close(e)
	orphan := filepath.Join(h.Cfg.StoreDir, "own", "v99999999-disk1")
	if err := os.WriteFile(orphan, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e = h.Open()
	if got := h.ReadOverlay(child.ID); got != before {
		t.Errorf("after the restart it sees %q, before %q", got, before)
	}
	if _, err := os.Stat(orphan); err == nil {
		t.Error("the file of a VM that is no more is still there")
	}
	if err := e.Kill(t.Context(), child.ID); err != nil {
		t.Fatal(err)
	}
	if left := h.OverlayFiles(); left != "" {
		t.Errorf("left %q", left)
	}
}

// A sandbox that failed keeps its disk until it is killed.
func TestAFailedSandboxKeepsItsDiskUntilKilled(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	child := h.Disky(e, 1)[0]
	if err := unix.Kill(child.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "a failed sandbox", func() bool { i, _ := e.Get(child.ID); return i.Status == sandbox.StatusFailed })
	if h.OverlayFiles() == "" {
		t.Error("its disk is gone")
	}
	if err := e.Kill(context.Background(), child.ID); err != nil {
		t.Fatal(err)
	}
	if left := h.OverlayFiles(); left != "" {
		t.Errorf("left %q", left)
	}
}

func TestADamagedUpperIsRefused(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	if err := os.WriteFile(h.Cfg.Images.(enginefake.Images).Dir+"/upper", []byte("no disk"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "d", Image: "disky"}, nil)
	enginefake.WantError(t, err, sandbox.ErrConflict, "layer is damaged")
	var p *sandbox.Error
	if !errors.As(err, &p) || p.Reason() != sandbox.ReasonImageDamaged {
		t.Errorf("the reason is not told: %v", err)
	}
}

func TestAChildThatFailsLeavesNoDisk(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Disky(e, 1)
	kept := h.OverlayFiles()
	h.Fault("restore-fail", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "d", N: 1})
	if err != nil || r.Children[0].Err == nil {
		t.Fatalf("got %+v, %v", r, err)
	}
	if got := h.OverlayFiles(); got != kept {
		t.Errorf("left %q, want %q", got, kept)
	}
}

func TestWhatDisksTakeIsTheirOwners(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Disky(e, 2)
	for _, name := range strings.Fields(h.OverlayFiles()) {
		if err := os.WriteFile(filepath.Join(h.Cfg.StoreDir, "own", name), make([]byte, 64<<10), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n := e.OverlayBytes(""); n < 2*(64<<10) || n > 4*(64<<10) {
		t.Errorf("two files of 64 KiB take %d bytes", n)
	}
	if n := e.OverlayBytes("acme"); n != 0 {
		t.Errorf("who has none takes %d bytes", n)
	}
}
