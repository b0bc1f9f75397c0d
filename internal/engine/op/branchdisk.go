package op

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/overlay"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// A branch freezes a disk's overlay file by switching the disk to an empty one. The frozen file
// becomes a layer. The VMM then uses the layer in place of the file, and the file is deleted. If
// the branch fails in between, the disk keeps its content: the frozen file stays part of the disk,
// and the next branch first makes the layer.

// diskStack holds a disk's layers, including the ones added by the branch.
type diskStack struct {
	*snapshot.Stack
	bytes  int64 // size of the disk
	frozen []string
	volume bool // the frozen files are the volume's to remove
}

// newOverlays creates the new overlay files of the disks. It records them in the journal before the
// VMM gets them.
func (w *branchOp) newOverlays() (next []*os.File, err error) {
	lines := w.m.Disks.List()
	for i := range lines {
		if _, err := w.overlayFile(lines[i].Overlay); err != nil {
			closeFiles(next)
			return nil, err
		}
		f, err := newOverlay(w, lines[i])
		if err != nil {
			closeFiles(next)
			resolve(lines, nil)
			return nil, err
		}
		next, lines[i].Next = append(next, f), f.Name()
		if lines[i].Volume == "" {
			w.touched = append(w.touched, f.Name())
		}
	}
	if err := w.keepLines(lines); err != nil {
		closeFiles(next)
		w.m.Disks.Set(resolve(lines, nil)) // the VMM does not know of them
		return nil, err
	}
	return next, nil
}

// removeOrphans removes overlay files after a branch whose sandbox was killed meanwhile. The kill
// could not know of these files: the branch had created them without recording them yet, or had
// already dropped them from its records.
func (w *branchOp) removeOrphans() {
	if !w.b.AwaitKilled() {
		return
	}
	for _, path := range w.touched {
		os.Remove(path)
	}
}

// overlayFile opens an overlay file until the branch ends. The captured data thus survives if the
// sandbox is killed before it is written.
func (w *branchOp) overlayFile(path string) (*os.File, error) {
	if f := w.owns[path]; f != nil {
		return f, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	w.undo.Push(func() { f.Close() })
	if w.owns == nil {
		w.owns = map[string]*os.File{}
	}
	w.owns[path] = f
	return f, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// keepLines writes the files of the sandbox's disks to the journal.
func (w *branchOp) keepLines(lines []vmproc.Disk) error {
	if len(lines) == 0 {
		return nil
	}
	w.m.Disks.Set(lines)
	return w.b.Save()
}

// statusTimeout bounds the status request about switched overlays.
const statusTimeout = 10 * time.Second

// afterCapture records the current files of the disks after a capture. If it cannot find them out,
// the next branch asks again.
func (w *branchOp) afterCapture(captured error) {
	lines := w.m.Disks.List()
	if len(lines) == 0 {
		return
	}
	generations := make([]int, len(lines))
	for i := range lines {
		generations[i] = lines[i].Generation + 1
	}
	if captured != nil {
		ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
		defer cancel()
		st, err := w.m.Proc.Status(ctx)
		if err != nil {
			return
		}
		generations = st.OverlayGeneration
	}
	if err := w.keepLines(resolve(lines, generations)); err != nil {
		w.e.cfg.Logger.Error("write journal", "sandbox", w.req.SandboxID, "err", err)
	}
}

// resolve updates lines to the overlay generations reported by the VMM, and removes the new files
// of disks that were not switched.
func resolve(lines []vmproc.Disk, generations []int) []vmproc.Disk {
	for i := range lines {
		l := &lines[i]
		switch {
		case l.Next == "":
		case i < len(generations) && generations[i] > l.Generation:
			l.Frozen, l.Overlay, l.Generation = append(l.Frozen, l.Overlay), l.Next, generations[i]
		default:
			os.Remove(l.Next)
		}
		l.Next = ""
	}
	return lines
}

// settle finishes the incomplete work of an earlier branch. It makes layers of frozen files now, or
// the branch fails: otherwise the frozen files would pile up.
func (w *branchOp) settle(ctx context.Context) error {
	lines := w.m.Disks.List()
	open, frozen := false, false
	for _, l := range lines {
		open, frozen = open || l.Next != "", frozen || len(l.Frozen) > 0
	}
	if open {
		st, err := w.m.Proc.Status(ctx)
		if err != nil {
			return err
		}
		if err := w.keepLines(resolve(lines, st.OverlayGeneration)); err != nil {
			return err
		}
		for _, l := range w.m.Disks.List() {
			frozen = frozen || len(l.Frozen) > 0
		}
	}
	if !frozen {
		return nil
	}
	// The first call may return the error of the earlier branch. The second call then writes the
	// pending extent maps.
	if err := w.m.Proc.Captured(ctx); err != nil {
		if err := w.m.Proc.Captured(ctx); err != nil {
			return fmt.Errorf("finish an earlier branch that failed: %w", err)
		}
	}
	if err := w.layDisks(ctx, w.m.Disks.List(), false); err != nil {
		return fmt.Errorf("finish the disk of an earlier branch that failed: %w", err)
	}
	return w.takeOver(ctx)
}

// layDisks makes layers of the disks' frozen files.
func (w *branchOp) layDisks(ctx context.Context, lines []vmproc.Disk, flat bool) error {
	w.disks = nil
	var sizes []int64
	for _, d := range w.src.Files.Manifest.Disks {
		if !d.ReadOnly && d.Volume == nil {
			sizes = append(sizes, d.Bytes)
		}
	}
	for _, v := range w.b.Info().Volumes {
		sizes = append(sizes, v.Bytes)
	}
	if len(lines) != len(sizes) {
		return fmt.Errorf("the sandbox has %d writable disks, its snapshot %d", len(lines), len(sizes))
	}
	for i, l := range lines {
		if err := w.layDisk(ctx, l, sizes[i], flat); err != nil {
			return fmt.Errorf("write disk %d: %w", l.Index, err)
		}
	}
	return nil
}

func (w *branchOp) layDisk(ctx context.Context, l vmproc.Disk, size int64, flat bool) error {
	var below []*layer.Layer
	if len(l.Backing) > 0 {
		chain, err := w.draft.Layers().Chain(l.Backing...)
		if err != nil {
			return err
		}
		w.undo.Push(func() { chain.Close() })
		below = chain.Layers()
	}
	k := w.draft.Stack(layer.Disk, snapshot.Disk{Bytes: size}.LayerBytes(), snapshot.DiskLimits, below...)
	for _, path := range l.Frozen {
		f, err := w.overlayFile(path)
		if err != nil {
			return err
		}
		if err := layFrozen(ctx, k, f, size); err != nil {
			return err
		}
	}
	var err error
	if flat {
		err = k.Flatten(ctx, nil)
	}
	if err == nil {
		err = k.Bound(ctx)
	}
	w.disks = append(w.disks, diskStack{k, size, l.Frozen, l.Volume != ""})
	return err
}

// layFrozen puts the blocks of an overlay file over the disk's layers.
func layFrozen(ctx context.Context, k *snapshot.Stack, f *os.File, size int64) error {
	d, err := overlay.Open(f, size, nil)
	if err != nil {
		return err
	}
	var own []extent.Extent
	err = d.Allocated(func(off, n int64, zero bool) error {
		n = (n + layer.BlockSize - 1) / layer.BlockSize * layer.BlockSize // the file has whole blocks
		e := extent.Extent{File: f, FileOffset: off, Offset: off, Length: n}
		if zero {
			e.File, e.FileOffset = nil, 0
		}
		own = append(own, e)
		return nil
	})
	if err != nil {
		return err
	}
	return k.Diff(ctx, own)
}

// takeOver moves the sandbox's disks onto their new layers. It pins the layers for the sandbox,
// then updates the journal, then the VMM. Until the last step the VMM reads the frozen files, which
// it has open, so a failure there does no harm.
func (w *branchOp) takeOver(ctx context.Context) error {
	lines := w.m.Disks.List()
	if len(lines) == 0 {
		return nil
	}
	ids := w.src.Files.Manifest.LayerIDs()
	for i, d := range w.disks {
		lines[i].Backing = d.Chain().Layers
		ids = append(ids, lines[i].Backing...)
	}
	if err := w.e.sandboxes.Pin(w.b, w.m, ids); err != nil {
		return err
	}
	before := w.m.Disks.List()
	for i, d := range w.disks {
		if !d.volume {
			w.touched = append(w.touched, d.frozen...)
		}
		lines[i].Frozen = lines[i].Frozen[len(d.frozen):]
	}
	if err := w.keepLines(lines); err != nil {
		w.m.Disks.Set(before) // matches the journal
		return err
	}
	err := errors.Join(settleVolumes(w.e, lines), w.rebase(ctx))
	for _, d := range w.disks {
		if d.volume {
			continue
		}
		for _, path := range d.frozen {
			if rm := os.Remove(path); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
				err = errors.Join(err, rm)
			}
		}
	}
	return err
}

// rebase puts the VM's disks on their new layers.
func (w *branchOp) rebase(ctx context.Context) error {
	bases := make([][]extent.Extent, 0, len(w.disks))
	for _, d := range w.disks {
		chain, err := w.e.layers.Chain(d.Chain().Layers...)
		if err != nil {
			return err
		}
		defer chain.Close()
		bases = append(bases, launch.DiskBase(chain.Image, d.bytes))
	}
	return w.m.Proc.Rebase(ctx, bases)
}

// describeDisks adds the disks to the manifest. Read-only disks are adopted from the parent;
// writable disks have layers.
func (w *branchOp) describeDisks(ctx context.Context, m *snapshot.Manifest) error {
	written := w.disks
	for _, d := range w.src.Files.Manifest.Disks {
		if d.Volume != nil {
			break // those of the sandbox follow
		}
		if d.ReadOnly {
			if err := w.draft.Adopt(ctx, d.File, w.src.Files.File(d.File)); err != nil {
				return err
			}
			m.Disks = append(m.Disks, d)
			continue
		}
		disk := snapshot.Disk{Bytes: d.Bytes, Chain: written[0].Chain()}
		disk.Own = disk.OwnSince(d.Chain)
		m.Disks, written = append(m.Disks, disk), written[1:]
	}
	describeVolumes(w, m, written)
	return nil
}
