package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/overlay"
)

const upperSize = 1 << 20

// makeUpper makes the empty disk of "disky".
func (h *host) makeUpper() {
	h.t.Helper()
	f, err := os.Create(h.cfg.Images.(images).dir + "/upper")
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	spec := layer.Spec{ID: layer.NewID(), Kind: layer.Disk, Size: upperSize}
	w, err := layer.NewWriter(f, spec, layer.Options{})
	if err != nil {
		h.t.Fatal(err)
	}
	first := make([]byte, layer.BlockSize)
	copy(first, "empty")
	if err := w.Data(0, first); err != nil {
		h.t.Fatal(err)
	}
	if _, err := w.Finish(); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) overlayFiles() string {
	h.t.Helper()
	entries, err := os.ReadDir(filepath.Join(h.cfg.StoreDir, "own"))
	if err != nil {
		h.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// disky makes a snapshot with a writable disk, and n children of it.
func (h *host) disky(e *Engine, n int) []sandbox.Info {
	h.t.Helper()
	h.makeUpper()
	if _, err := e.CreateSnapshot(h.t.Context(), sandbox.CreateRequest{Tag: "d", Image: "disky"}, nil); err != nil {
		h.t.Fatal(err)
	}
	if left := h.overlayFiles(); left != "" {
		h.t.Errorf("the parent and its recorded child have left %q", left)
	}
	if n == 0 {
		return nil
	}
	return h.fork(e, "d", n)
}

// readOverlay returns a sandbox's view of the beginning of its disk, read from the files alone.
func (h *host) readOverlay(e *Engine, id string) string {
	h.t.Helper()
	text := make([]byte, 8192)
	h.openOverlay(e, id, func(d *overlay.Disk) {
		if _, err := d.ReadAt(text, 0); err != nil {
			h.t.Fatal(err)
		}
	})
	return strings.ReplaceAll(strings.TrimRight(string(text), "\x00"), "\x00", "")
}

// openOverlay opens a sandbox's disk from the files alone.
func (h *host) openOverlay(e *Engine, id string, read func(*overlay.Disk)) {
	h.t.Helper()
	b, _, err := e.sandboxes.Find(id)
	if err != nil {
		h.t.Fatal(err)
	}
	lines := b.Disks().List()
	if len(lines) != 1 || len(lines[0].Frozen) != 0 || lines[0].Next != "" {
		h.t.Fatalf("sandbox %s has disks %+v", id, lines)
	}
	own, err := os.OpenFile(lines[0].Overlay, os.O_RDWR, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	defer own.Close()
	base, err := e.home.Layers.Chain(lines[0].Backing...)
	if err != nil {
		h.t.Fatal(err)
	}
	defer base.Close()
	d, err := overlay.Open(own, upperSize, launch.DiskBase(base.Image, upperSize))
	if err != nil {
		h.t.Fatal(err)
	}
	read(d)
}

func TestChildrenHaveDisksOfTheirOwn(t *testing.T) {
	h := newHost(t)
	e := h.open()
	seen := map[string]bool{}
	children := h.disky(e, 3)
	for _, c := range children {
		lines := strings.Split(h.readOverlay(e, c.ID), "\n")
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
	if left := h.overlayFiles(); left != "" {
		t.Errorf("killed sandboxes have left %q", left)
	}
}

func TestOwnDisksOutliveTheDaemon(t *testing.T) {
	h := newHost(t)
	e := h.open()
	child := h.disky(e, 1)[0]
	before := h.readOverlay(e, child.ID)
	h.close(e)
	orphan := filepath.Join(h.cfg.StoreDir, "own", "v99999999-disk1")
	if err := os.WriteFile(orphan, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e = h.open()
	if got := h.readOverlay(e, child.ID); got != before {
		t.Errorf("after the restart it sees %q, before %q", got, before)
	}
	if _, err := os.Stat(orphan); err == nil {
		t.Error("the file of a VM that is no more is still there")
	}
	if err := e.Kill(t.Context(), child.ID); err != nil {
		t.Fatal(err)
	}
	if left := h.overlayFiles(); left != "" {
		t.Errorf("left %q", left)
	}
}

// A sandbox that failed keeps its disk until it is killed.
func TestAFailedSandboxKeepsItsDiskUntilKilled(t *testing.T) {
	h := newHost(t)
	e := h.open()
	child := h.disky(e, 1)[0]
	_, m, err := e.sandboxes.Running(child.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Proc.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a failed sandbox", func() bool { i, _ := e.Get(child.ID); return i.Status == sandbox.StatusFailed })
	if h.overlayFiles() == "" {
		t.Error("its disk is gone")
	}
	if err := e.Kill(context.Background(), child.ID); err != nil {
		t.Fatal(err)
	}
	if left := h.overlayFiles(); left != "" {
		t.Errorf("left %q", left)
	}
}

func TestADamagedUpperIsRefused(t *testing.T) {
	h := newHost(t)
	e := h.open()
	if err := os.WriteFile(h.cfg.Images.(images).dir+"/upper", []byte("no disk"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "d", Image: "disky"}, nil)
	wantError(t, err, sandbox.ErrConflict, "layer is damaged")
	var p *sandbox.Error
	if !errors.As(err, &p) || p.Reason() != sandbox.ReasonImageDamaged {
		t.Errorf("the reason is not told: %v", err)
	}
}

func TestAChildThatFailsLeavesNoDisk(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.disky(e, 1)
	kept := h.overlayFiles()
	h.fault("restore-fail", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "d", N: 1})
	if err != nil || r.Children[0].Err == nil {
		t.Fatalf("got %+v, %v", r, err)
	}
	if got := h.overlayFiles(); got != kept {
		t.Errorf("left %q, want %q", got, kept)
	}
}

func TestWhatDisksTakeIsTheirOwners(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.disky(e, 2)
	for _, name := range strings.Fields(h.overlayFiles()) {
		if err := os.WriteFile(filepath.Join(h.cfg.StoreDir, "own", name), make([]byte, 64<<10), 0o600); err != nil {
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
