package guestmem

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/extent"
)

// Pages of a copy-on-write mapping that this process has written are its
// anonymous pages, and only those can differ from what is mapped. A page of
// zeros that was only read is no page of its own.
const notPrivate = pageFile | pageZeroPage

// PrivateDirty calls fn for runs of the memory's private dirty pages, in rising order. The memory
// may be in use: a page that becomes the memory's own meanwhile may be missed.
// Before Linux 6.7 it may also report pages of zeros.
func (m *Map) PrivateDirty(fn func(offset, length int64) error) error {
	f, err := m.openPagemap()
	if err != nil {
		return fmt.Errorf("find private dirty pages: %w", err)
	}
	defer f.Close()
	s := scanner{pagemap: f, arg: pmScanArg{
		inverted: notPrivate, mask: notPrivate, anyOf: pagePresent | pageSwapped, returned: pagePresent,
	}}
	err = s.scan(m, 0, m.size, fn)
	if errors.Is(err, unix.ENOTTY) {
		return m.Accessed(func(offset, length int64, written bool) error {
			if !written {
				return nil
			}
			return fn(offset, length)
		})
	}
	if err != nil {
		return fmt.Errorf("find private dirty pages: %w", err)
	}
	return nil
}

// Tracker tells which pages were written from some moment on, by the guest or
// by this process. At first that is every page of the memory's own, whatever trackers
// there were before; Arm takes pages out of it. Asynchronous write-protection costs a fault for the first
// write to a page after it was armed, which the kernel resolves alone.
type Tracker struct {
	m       *Map
	pagemap *os.File
	scan    scanner
	armed   []extent.Run // long runs that were armed, rising and disjoint
	// stale are private dirty pages that an earlier tracker armed and this one has not: their
	// protection, where it still stands, tells nothing of this tracker's time.
	stale extent.PageSet
}

// longRun is from how many bytes on a run that was armed is looked at by itself. The
// kernel then looks at its pages ten times as fast (BenchmarkWritten: 7 for 72 ns each,
// emulated); a short run would not win back the call that it costs.
const longRun = 128 * PageSize

// Track makes a tracker. It arms nothing yet. errors.ErrUnsupported: this kernel cannot.
func (m *Map) Track() (*Tracker, error) {
	if m.watch == nil {
		if err := m.Watch(); err != nil {
			return nil, err
		}
	}
	f, err := m.openPagemap()
	if err != nil {
		return nil, fmt.Errorf("track guest memory: %w", err)
	}
	if m.protected == nil {
		m.protected = extent.NewPageSet(m.size)
	}
	return &Tracker{m: m, pagemap: f, scan: scanner{pagemap: f}, stale: slices.Clone(m.protected)}, nil
}

// Arm protects a run: until the next write its pages are not reported.
func (t *Tracker) Arm(offset, length int64) error {
	t.m.protected.Add(offset, length) // also if it fails half-way
	t.scan.arg = pmScanArg{flags: scanProtect | scanCheckAsync, mask: pageWritten, returned: pageWritten}
	// In one range only: KVM forgets its mappings of all that is scanned this way.
	if err := t.scan.scan(t.m, offset, offset+length, func(int64, int64) error { return nil }); err != nil {
		return fmt.Errorf("track guest memory: %w", err)
	}
	t.stale.Remove(offset, length)
	if length >= longRun {
		t.note(extent.Run{Offset: offset, Length: length})
	}
	return nil
}

// note adds a run to the armed ones, unless it is among them.
func (t *Tracker) note(r extent.Run) {
	i, _ := slices.BinarySearchFunc(t.armed, r.Offset,
		func(a extent.Run, at int64) int { return cmp.Compare(a.End(), at) })
	switch {
	case i == len(t.armed) || r.End() < t.armed[i].Offset:
		t.armed = slices.Insert(t.armed, i, r)
	case t.armed[i].End() == r.Offset && (i+1 == len(t.armed) || r.End() <= t.armed[i+1].Offset):
		t.armed[i].Length += r.Length
	}
}

// Written calls fn for runs of private dirty pages that this tracker has not armed, or that were
// written since, in rising order.
func (t *Tracker) Written(fn func(offset, length int64) error) error {
	if t.stale.Empty() { // as it is after a round over all private dirty pages
		return t.unprotected(fn)
	}
	all := slices.Clone(t.stale)
	err := t.unprotected(func(offset, length int64) error {
		all.Add(offset, length)
		return nil
	})
	if err != nil {
		return err
	}
	for r := range all.Runs() {
		if err := fn(r.Offset, r.Length); err != nil {
			return err
		}
	}
	return nil
}

// unprotected calls fn for runs of private dirty pages that are not write-protected.
func (t *Tracker) unprotected(fn func(offset, length int64) error) error {
	anyPrivate := pmScanArg{
		flags: scanCheckAsync, inverted: notPrivate, mask: notPrivate | pageWritten, anyOf: pagePresent | pageSwapped,
		returned: pageWritten,
	}
	// Where all pages were the memory's own, and armed, one bit of each tells all; asked for
	// that alone, the kernel need not find out what sort of page each is.
	armedOnce := pmScanArg{flags: scanCheckAsync, mask: pageWritten, returned: pageWritten}
	at := int64(0)
	for _, r := range t.armed {
		if err := t.find(anyPrivate, at, r.Offset, fn); err != nil {
			return err
		}
		if err := t.find(armedOnce, r.Offset, r.End(), fn); err != nil {
			return err
		}
		at = r.End()
	}
	return t.find(anyPrivate, at, t.m.size, fn)
}

func (t *Tracker) find(what pmScanArg, from, to int64, fn func(offset, length int64) error) error {
	t.scan.arg = what
	if err := t.scan.scan(t.m, from, to, fn); err != nil {
		return fmt.Errorf("track guest memory: %w", err)
	}
	return nil
}

// Close ends the tracking. The memory stays registered.
func (t *Tracker) Close() { t.pagemap.Close() }
