package guestmem

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/extent"
)

// Pages of a copy-on-write mapping written by this process are anonymous, and only these pages can
// differ from the mapped file. A zero page is not private if it was only read.
const notPrivate = pageFile | pageZeroPage

// PrivateDirty calls fn for runs of the memory's private dirty pages, in ascending order. The
// memory may be in use: a page becoming private meanwhile may be missed. Before Linux 6.7 it may
// also report pages of zeros.
func (m *Map) PrivateDirty(fn func(offset, length int64) error) error {
	f, err := m.openPagemap()
	if err != nil {
		return fmt.Errorf("find private dirty pages: %w", err)
	}
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

// Tracker finds the pages written by the guest or this process since they were armed. Initially it
// reports every private dirty page, even if an earlier tracker armed it; Arm removes pages from the
// set. Asynchronous write-protection costs one fault at the first write to an armed page, which the
// kernel resolves alone.
type Tracker struct {
	m     *Map
	scan  scanner
	armed []extent.Run // long armed runs, ascending and disjoint
	// stale are private dirty pages armed by an earlier tracker, but not by this one. Their
	// remaining protection says nothing about writes since this tracker began.
	stale extent.PageSet
}

// longRun is the minimum size, in bytes, of a separately scanned armed run. The kernel then scans
// its pages ten times as fast (BenchmarkWritten: 7 instead of 72 ns each, emulated). A shorter run
// would not recover the cost of the extra call.
const longRun = 128 * PageSize

// Track returns a tracker without armed pages. It returns errors.ErrUnsupported if the kernel lacks
// support.
func (m *Map) Track() (*Tracker, error) {
	if !m.watched {
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
	return &Tracker{m: m, scan: scanner{pagemap: f}, stale: slices.Clone(m.protected)}, nil
}

// Limits of the pages armed by one call. armStep limits the bytes, since all of them are copied
// before the next call. Short runs are armed together with the gaps between them if each gap is
// less than armGap. KVM drops its mappings of the whole range of a call, so the guest faults again
// on pages between runs. But each call costs the guest as much as some such faults, because its
// CPUs are stopped for it.
const (
	armStep = 1 << 20
	armGap  = 32 * PageSize
)

// Arm protects runs, which are disjoint and ascending. Their pages are not reported until the next
// write. Arm proceeds in steps, and after each calls armed for the pages to copy now: the step's
// part of the runs, and pages between them, if they became private meanwhile and are protected too.
func (t *Tracker) Arm(runs []extent.Run, armed func(extent.Run) error) error {
	for len(runs) > 0 {
		n, arm := near(runs), t.armLong
		if n > 1 {
			arm = t.armNear
		}
		if err := arm(runs[:n], armed); err != nil {
			return err
		}
		runs = runs[n:]
	}
	return nil
}

// near returns the number of runs armed by one call, from the first on.
func near(runs []extent.Run) int {
	n := 1
	for ; n < len(runs) && max(runs[n-1].Length, runs[n].Length) < longRun; n++ {
		if runs[n].Offset-runs[n-1].End() > armGap || runs[n].End()-runs[0].Offset > armStep {
			break
		}
	}
	return n
}

// armLong arms one run by itself.
func (t *Tracker) armLong(one []extent.Run, armed func(extent.Run) error) error {
	for at := one[0].Offset; at < one[0].End(); at += armStep {
		step := one[0].Clip(at, at+armStep)
		t.m.protected.Add(step.Offset, step.Length) // also if it fails half-way
		t.scan.arg = pmScanArg{flags: scanProtect | scanCheckAsync, mask: pageWritten, returned: pageWritten}
		err := t.scan.scan(t.m, step.Offset, step.End(), func(int64, int64) error { return nil })
		if err != nil {
			return fmt.Errorf("track guest memory: %w", err)
		}
		t.stale.Remove(step.Offset, step.Length)
		if step.Length >= longRun {
			t.note(step)
		}
		if err := armed(step); err != nil {
			return err
		}
	}
	return nil
}

// armNear arms neighbouring runs with one call. Private pages between them are protected and armed
// too; the kernel reports which ones.
func (t *Tracker) armNear(runs []extent.Run, armed func(extent.Run) error) error {
	from, to := runs[0].Offset, runs[len(runs)-1].End()
	all := slices.Clone(runs)
	t.scan.arg = pmScanArg{
		flags: scanProtect | scanCheckAsync, inverted: notPrivate, mask: notPrivate | pageWritten,
		anyOf: pagePresent | pageSwapped, returned: pageWritten,
	}
	err := t.scan.scan(t.m, from, to, func(offset, length int64) error {
		all = append(all, extent.Run{Offset: offset, Length: length})
		return nil
	})
	if err != nil { // the protected pages are unknown
		t.m.protected.Add(from, to-from)
		return fmt.Errorf("track guest memory: %w", err)
	}
	all = extent.Joined(all)
	for _, r := range all { // record all runs, even if armed fails for one
		t.m.protected.Add(r.Offset, r.Length)
		t.stale.Remove(r.Offset, r.Length)
	}
	for _, r := range all {
		if err := armed(r); err != nil {
			return err
		}
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

// Written calls fn for runs of private dirty pages not armed by this tracker, or written since, in
// ascending order.
func (t *Tracker) Written(fn func(offset, length int64) error) error {
	if t.stale.Empty() { // true after a round over all private dirty pages
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

// unprotected calls fn for runs of private dirty pages without write-protection.
func (t *Tracker) unprotected(fn func(offset, length int64) error) error {
	anyPrivate := pmScanArg{
		flags: scanCheckAsync, inverted: notPrivate, mask: notPrivate | pageWritten, anyOf: pagePresent | pageSwapped,
		returned: pageWritten,
	}
	// Where all pages were private and armed, one bit of each is enough. If the kernel returns only
	// this bit, it need not determine the kind of each page.
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
