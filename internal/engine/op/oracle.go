package op

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/pagedigest"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// The oracle (Config.Oracle, for tests only) verifies captures. The VMM digests memory and disks
// while the guest is stopped. The resulting snapshot is read back the way a fork maps it, and
// compared with the digests, before it can be forked.

// oracleTally counts the snapshots compared by an engine.
type oracleTally struct{ checked atomic.Int64 }

// oracleFile returns the file for a capture's digests, open until u runs. It returns nil without an
// oracle.
func (o *Ops) oracleFile(d *snapshot.Draft, u *undo.Stack) (*os.File, error) {
	if !o.cfg.Oracle {
		return nil, nil
	}
	f, err := d.Layers().Scratch()
	if err != nil {
		return nil, err
	}
	u.Push(func() { f.Close() })
	return f, nil
}

// checkCaptured compares a newly committed snapshot with the digests of its source.
func (o *Ops) checkCaptured(d *catalog.Draft, digests *os.File) error {
	if digests == nil {
		return nil
	}
	return o.checkImage(d, func(src *launch.Source) (pagedigest.Digests, error) { return readDigests(src, digests) })
}

// checkCompacted compares a newly committed snapshot with the snapshot it was compacted from.
func (o *Ops) checkCompacted(d *catalog.Draft, from *launch.Source) error {
	if !o.cfg.Oracle {
		return nil
	}
	return o.checkImage(d, func(*launch.Source) (pagedigest.Digests, error) { return digestsOf(from) })
}

// checkImage compares a snapshot with the wanted digests. It deletes a snapshot that differs, so it
// cannot be forked.
func (o *Ops) checkImage(d *catalog.Draft, want func(*launch.Source) (pagedigest.Digests, error)) error {
	start, tag := o.cfg.Now(), d.Tag()
	pages, err := o.compareImage(tag, want)
	if err != nil {
		o.cfg.Logger.Error(sandbox.OracleMismatch, "tag", tag, "err", err)
		if err := d.Withdraw(); err != nil {
			o.cfg.Logger.Error("delete a snapshot that differs from its source", "tag", tag, "err", err)
		}
		return fmt.Errorf("%s: snapshot %s differs from its source: %w", sandbox.OracleMismatch, tag, err)
	}
	o.cfg.Logger.Info(sandbox.OracleChecked, "n", o.tally.checked.Add(1), "tag", tag, "pages", pages,
		"took", o.cfg.Now().Sub(start))
	return nil
}

// compareImage compares a snapshot and returns the number of pages and blocks compared.
func (o *Ops) compareImage(tag string, want func(*launch.Source) (pagedigest.Digests, error)) (pages int, err error) {
	src, err := o.OpenSource(tag)
	if err != nil {
		return 0, err
	}
	defer src.Close()
	is, err := want(src)
	if err != nil {
		return 0, err
	}
	shows, err := digestsOf(src)
	if err != nil {
		return 0, err
	}
	pages = len(shows.Memory)
	for _, disk := range shows.Disks {
		pages += len(disk)
	}
	return pages, pagedigest.Compare(shows, is)
}

// digestsOf returns the digests of a child's view, computed from the very extents it is given.
func digestsOf(s *launch.Source) (d pagedigest.Digests, err error) {
	if d.Memory, err = ExtentDigests(s.Restore.Memory, s.Files.Memory.Size()); err != nil {
		return d, fmt.Errorf("memory: %w", err)
	}
	for i, disk := range s.Restore.Disks {
		if disk.ReadOnly {
			continue
		}
		sums, err := ExtentDigests(disk.Base, disk.Size)
		if err != nil {
			return d, fmt.Errorf("disk %d: %w", i, err)
		}
		d.Disks = append(d.Disks, sums)
	}
	return d, nil
}

// ExtentDigests returns the digests of the first size bytes of an image made of extents.
func ExtentDigests(list []extent.Extent, size int64) ([]uint64, error) {
	image := ExtentImage(list)
	return pagedigest.Of(image, size, func(at int64) (int64, error) { return image.next(at, size) })
}

// readDigests reads the digests written by a VMM for a machine with this memory and these disks.
func readDigests(s *launch.Source, f *os.File) (pagedigest.Digests, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return pagedigest.Digests{}, err
	}
	var disks []int64
	for _, d := range s.Restore.Disks {
		if !d.ReadOnly {
			disks = append(disks, d.Size)
		}
	}
	return pagedigest.Read(bufio.NewReaderSize(f, 1<<20), s.Files.Memory.Size(), disks...)
}
