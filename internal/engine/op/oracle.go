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

// The oracle (Config.Oracle, for tests only) does not believe a capture. The VMM
// digests memory and disks while the guest stands, and the snapshot that comes of
// it is read back as a fork maps it and held against that, before anybody can
// fork from it.

// oracleTally numbers the snapshots that an engine has compared.
type oracleTally struct{ checked atomic.Int64 }

// oracleFile is what a capture's digests go to, until u runs; nil without an oracle.
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

// checkCaptured compares a snapshot that was just committed with the digests of its source.
func (o *Ops) checkCaptured(d *catalog.Draft, digests *os.File) error {
	if digests == nil {
		return nil
	}
	return o.checkImage(d, func(src *launch.Source) (pagedigest.Digests, error) { return readDigests(src, digests) })
}

// checkCompacted compares a snapshot that was just committed with the one that it shows anew.
func (o *Ops) checkCompacted(d *catalog.Draft, from *launch.Source) error {
	if !o.cfg.Oracle {
		return nil
	}
	return o.checkImage(d, func(*launch.Source) (pagedigest.Digests, error) { return digestsOf(from) })
}

// checkImage compares a snapshot with what it has to be. One that differs is
// deleted: nobody is to fork from it.
func (o *Ops) checkImage(d *catalog.Draft, want func(*launch.Source) (pagedigest.Digests, error)) error {
	start, tag := o.cfg.Now(), d.Tag()
	pages, err := o.compareImage(tag, want)
	if err != nil {
		o.cfg.Logger.Error(sandbox.OracleMismatch, "tag", tag, "err", err)
		if err := d.Withdraw(); err != nil {
			o.cfg.Logger.Error("delete a snapshot that is not what its source was", "tag", tag, "err", err)
		}
		return fmt.Errorf("%s: snapshot %s is not what its source was: %w", sandbox.OracleMismatch, tag, err)
	}
	o.cfg.Logger.Info(sandbox.OracleChecked, "n", o.tally.checked.Add(1), "tag", tag, "pages", pages,
		"took", o.cfg.Now().Sub(start))
	return nil
}

// compareImage tells how many pages and blocks it has compared.
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

// digestsOf are those of what a child sees: of the very extents that it is given.
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

func ExtentDigests(list []extent.Extent, size int64) ([]uint64, error) {
	image := ExtentImage(list)
	return pagedigest.Of(image, size, func(at int64) (int64, error) { return image.next(at, size) })
}

// readDigests reads what a VMM has written of a machine with this memory and these disks.
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
