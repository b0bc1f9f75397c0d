package guestmem

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/uffd"
)

// Pages of a copy-on-write mapping that this process has written are its
// anonymous pages, and only those can differ from what is mapped. A page of
// zeros that was only read is no page of its own.
const notOwn = pageFile | pageZeroPage

// Own calls fn for runs of the memory's own pages, in rising order. The memory
// may be in use: a page that becomes the memory's own meanwhile may be missed.
// Before Linux 6.7 it may also report pages of zeros.
func (m *Map) Own(fn func(offset, length int64) error) error {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return fmt.Errorf("find own pages: %w", err)
	}
	defer f.Close()
	s := scanner{pagemap: f, arg: pmScanArg{
		inverted: notOwn, mask: notOwn, anyOf: pagePresent | pageSwapped, returned: pagePresent,
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
		return fmt.Errorf("find own pages: %w", err)
	}
	return nil
}

// Tracker tells which pages were written from some moment on, by the guest or
// by this process. Asynchronous write-protection costs a fault for the first
// write to a page after it was armed, which the kernel resolves alone.
type Tracker struct {
	m       *Map
	pagemap *os.File
	scan    scanner
	armed   []span // long runs that were armed, rising and disjoint
}

// span is a part of the linear memory, in bytes.
type span struct{ from, to int64 }

// longRun is from how many bytes on a run that was armed is looked at by itself. The
// kernel then looks at its pages ten times as fast (BenchmarkWritten: 7 for 72 ns each,
// emulated); a short run would not win back the call that it costs.
const longRun = 128 * PageSize

// Track makes a tracker. It arms nothing yet. An error that wraps
// uffd.ErrUnsupported: this kernel cannot (before Linux 6.7).
func (m *Map) Track() (*Tracker, error) {
	if m.watch == nil {
		if err := m.Watch(); err != nil {
			return nil, err
		}
	}
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil, fmt.Errorf("track guest memory: %w", err)
	}
	return &Tracker{m: m, pagemap: f, scan: scanner{pagemap: f}}, nil
}

// Arm protects a run: until the next write its pages are not reported.
func (t *Tracker) Arm(offset, length int64) error {
	t.scan.arg = pmScanArg{flags: scanProtect | scanCheckAsync, mask: pageWritten, returned: pageWritten}
	// In one range only: KVM forgets its mappings of all that is scanned this way.
	if err := t.scan.scan(t.m, offset, offset+length, func(int64, int64) error { return nil }); err != nil {
		return fmt.Errorf("track guest memory: %w", err)
	}
	if length >= longRun {
		t.note(span{offset, offset + length})
	}
	return nil
}

// note adds a run to the armed ones, unless it is among them.
func (t *Tracker) note(s span) {
	i, _ := slices.BinarySearchFunc(t.armed, s.from, func(a span, from int64) int { return cmp.Compare(a.to, from) })
	switch {
	case i == len(t.armed) || s.to < t.armed[i].from:
		t.armed = slices.Insert(t.armed, i, s)
	case t.armed[i].to == s.from && (i+1 == len(t.armed) || s.to <= t.armed[i+1].from):
		t.armed[i].to = s.to
	}
}

// Written calls fn for runs of own pages that are not armed: never armed, or
// written since.
func (t *Tracker) Written(fn func(offset, length int64) error) error {
	anyOwn := pmScanArg{
		flags: scanCheckAsync, inverted: notOwn, mask: notOwn | pageWritten, anyOf: pagePresent | pageSwapped, returned: pageWritten,
	}
	// Where all pages were the memory's own, and armed, one bit of each tells all; asked for
	// that alone, the kernel need not find out what sort of page each is.
	armedOnce := pmScanArg{flags: scanCheckAsync, mask: pageWritten, returned: pageWritten}
	at := int64(0)
	for _, s := range t.armed {
		if err := t.find(anyOwn, span{at, s.from}, fn); err != nil {
			return err
		}
		if err := t.find(armedOnce, s, fn); err != nil {
			return err
		}
		at = s.to
	}
	return t.find(anyOwn, span{at, t.m.size}, fn)
}

func (t *Tracker) find(what pmScanArg, in span, fn func(offset, length int64) error) error {
	t.scan.arg = what
	if err := t.scan.scan(t.m, in.from, in.to, fn); err != nil {
		return fmt.Errorf("track guest memory: %w", err)
	}
	return nil
}

// Close ends the tracking. The memory stays registered.
func (t *Tracker) Close() { t.pagemap.Close() }

// Untracked tells whether an error of Track means that the kernel cannot.
func Untracked(err error) bool { return errors.Is(err, uffd.ErrUnsupported) }
