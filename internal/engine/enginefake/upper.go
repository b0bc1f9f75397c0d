package enginefake

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/overlay"
)

// UpperSize is the size of the empty disk of "disky".
const UpperSize = 1 << 20

// MakeUpper makes the empty disk of "disky".
func (h *Host) MakeUpper() {
	h.T.Helper()
	f, err := os.Create(h.Cfg.Images.(Images).Dir + "/upper")
	if err != nil {
		h.T.Fatal(err)
	}
	defer f.Close()
	spec := layer.Spec{ID: layer.NewID(), Kind: layer.Disk, Size: UpperSize}
	w, err := layer.NewWriter(f, spec, layer.Options{})
	if err != nil {
		h.T.Fatal(err)
	}
	first := make([]byte, layer.BlockSize)
	copy(first, "empty")
	if err := w.Data(0, first); err != nil {
		h.T.Fatal(err)
	}
	if _, err := w.Finish(); err != nil {
		h.T.Fatal(err)
	}
}

// OverlayFiles returns the names of the files of the sandboxes' own disks.
func (h *Host) OverlayFiles() string {
	h.T.Helper()
	entries, err := os.ReadDir(filepath.Join(h.Cfg.StoreDir, "own"))
	if err != nil {
		h.T.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// Disky makes a snapshot with a writable disk, and n children of it.
func (h *Host) Disky(e *engine.Engine, n int) []sandbox.Info {
	h.T.Helper()
	h.MakeUpper()
	if _, err := e.CreateSnapshot(h.T.Context(), sandbox.CreateRequest{Tag: "d", Image: "disky"}, nil); err != nil {
		h.T.Fatal(err)
	}
	if left := h.OverlayFiles(); left != "" {
		h.T.Errorf("the parent and its recorded child have left %q", left)
	}
	if n == 0 {
		return nil
	}
	return h.Fork(e, "d", n)
}

// ReadOverlay returns a sandbox's view of the beginning of its disk, read from the files alone.
func (h *Host) ReadOverlay(id string) string {
	h.T.Helper()
	text := make([]byte, 8192)
	OpenOverlay(h, id, func(d *overlay.Disk) {
		if _, err := d.ReadAt(text, 0); err != nil {
			h.T.Fatal(err)
		}
	})
	return strings.ReplaceAll(strings.TrimRight(string(text), "\x00"), "\x00", "")
}

// OpenOverlay opens a sandbox's disk from the files alone.
func OpenOverlay(h *Host, id string, read func(*overlay.Disk)) {
	h.T.Helper()
	_, rec := h.Journal(id)
	lines := rec.Disks
	if len(lines) != 1 || len(lines[0].Frozen) != 0 || lines[0].Next != "" {
		h.T.Fatalf("sandbox %s has disks %+v", id, lines)
	}
	own, err := os.OpenFile(lines[0].Overlay, os.O_RDWR, 0)
	if err != nil {
		h.T.Fatal(err)
	}
	defer own.Close()
	base, err := Layers(h).Chain(lines[0].Backing...)
	if err != nil {
		h.T.Fatal(err)
	}
	defer base.Close()
	d, err := overlay.Open(own, UpperSize, launch.DiskBase(base.Image, UpperSize))
	if err != nil {
		h.T.Fatal(err)
	}
	read(d)
}
