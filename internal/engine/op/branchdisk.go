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

// A branch freezes a disk by letting it go on in an empty overlay file. The frozen one
// becomes a layer; then the VMM is told to use that in its stead, and the file goes.
// If the branch fails in between, the disk is what it was: the file stays a part of
// it, and the next branch makes the layer first.

// diskStack is a disk's layers, and those that the branch puts on them.
type diskStack struct {
	*snapshot.Stack
	bytes  int64 // of the disk
	frozen []string
}

// newOverlays makes the files that the disks will go on in. The journal knows of them
// before the VMM does.
func (w *branchOp) newOverlays() (next []*os.File, err error) {
	lines := w.m.Disks.List()
	for i := range lines {
		if _, err := w.overlayFile(lines[i].Overlay); err != nil {
			closeFiles(next)
			return nil, err
		}
		f, err := w.m.NewOverlay(lines[i].Index)
		if err != nil {
			closeFiles(next)
			resolve(lines, nil)
			return nil, err
		}
		next, lines[i].Next = append(next, f), f.Name()
		w.touched = append(w.touched, f.Name())
	}
	if err := w.keepLines(lines); err != nil {
		closeFiles(next)
		w.m.Disks.Set(resolve(lines, nil)) // the VMM does not know of them
		return nil, err
	}
	return next, nil
}

// removeOrphans removes, at the end of a branch whose sandbox was killed
// meanwhile, the overlay files that the kill could not know of: those that the branch
// had made and not noted yet, or had dropped from its notes already.
func (w *branchOp) removeOrphans() {
	if !w.b.AwaitKilled() {
		return
	}
	for _, path := range w.touched {
		os.Remove(path)
	}
}

// overlayFile is an overlay file, open until the branch ends: what is captured does not
// go with the sandbox, if that is killed before all is written.
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

// keepLines writes what the sandbox's disks are made of to the journal.
func (w *branchOp) keepLines(lines []vmproc.Disk) error {
	if len(lines) == 0 {
		return nil
	}
	w.m.Disks.Set(lines)
	return w.b.Save()
}

// statusTimeout bounds the question whether a disk went on.
const statusTimeout = 10 * time.Second

// afterCapture notes after a capture in which files the disks are now. If even that
// cannot be found out, the next branch asks again.
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

// resolve brings lines up to what the VMM says of its disks, and removes the files
// that they did not go on in.
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

// settle ends what an earlier branch has left half done, so that this one adds to
// nothing: frozen files become layers now, or there is no branch.
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
	// The first call may tell of the one that failed; then it writes what maps there are still to be written.
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
		if !d.ReadOnly {
			sizes = append(sizes, d.Bytes)
		}
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
	below, err := w.draft.Layers().Chain(l.Backing...)
	if err != nil {
		return err
	}
	w.undo.Push(func() { below.Close() })
	k := w.draft.Stack(layer.Disk, below.Size(), snapshot.DiskLimits, below.Layers()...)
	for _, path := range l.Frozen {
		f, err := w.overlayFile(path)
		if err != nil {
			return err
		}
		if err := layFrozen(ctx, k, f, size); err != nil {
			return err
		}
	}
	if flat {
		err = k.Flatten(ctx, nil)
	}
	if err == nil {
		err = k.Bound(ctx)
	}
	w.disks = append(w.disks, diskStack{k, size, l.Frozen})
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

// takeOver puts the sandbox's disks on the layers that were made of them: held for
// it first, then in the journal, then in the VMM. Until that does it reads the
// frozen files, which it has open, so that nothing hangs on the last step.
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
		w.touched = append(w.touched, d.frozen...)
		lines[i].Frozen = lines[i].Frozen[len(d.frozen):]
	}
	if err := w.keepLines(lines); err != nil {
		w.m.Disks.Set(before) // as the journal still says
		return err
	}
	err := w.rebase(ctx)
	for _, d := range w.disks {
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

// describeDisks takes the parent's read-only disks over; the others have layers.
func (w *branchOp) describeDisks(ctx context.Context, m *snapshot.Manifest) error {
	written := w.disks
	for _, d := range w.src.Files.Manifest.Disks {
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
	return nil
}
