package guestmem

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/linux"
)

// Bits of a word of /proc/self/pagemap, besides the ones in touched.go.
const (
	pagemapFile      = 1 << 61 // of a file, or shared
	pagemapExclusive = 1 << 56 // mapped once; never set for the kernel's zero page
)

// Watch makes Accessed exact: from now on the kernel maps each page at its own first access. Call
// it after the memory is mapped and before the first access. If it returns errors.ErrUnsupported,
// Accessed reports only written pages.
func (m *Map) Watch() error {
	u, err := m.openUFFD()
	if err != nil {
		return fmt.Errorf("watch guest memory: %w", err)
	}
	if err := u.RegisterWP(m.HostAddr(Region{}), m.size); err != nil {
		return fmt.Errorf("watch guest memory: %w", err)
	}
	m.watched = true
	return nil
}

// Accessed calls fn for runs of pages touched since they were mapped, in ascending order: the
// written pages, and, if the memory is watched, also the pages only read. The memory must not be
// accessed meanwhile.
func (m *Map) Accessed(fn func(offset, length int64, written bool) error) error {
	f, err := m.openPagemap()
	if err != nil {
		return fmt.Errorf("find accessed pages: %w", err)
	}
	run := accessRun{fn: fn}
	buf := make([]byte, 16<<10)
	for off := int64(0); off < m.size; {
		n := min(int64(len(buf)), (m.size-off)/PageSize*8)
		if _, err := f.ReadAt(buf[:n], int64(m.HostAddr(Region{Offset: off}))/PageSize*8); err != nil {
			return fmt.Errorf("find accessed pages: %w", err)
		}
		for i := int64(0); i < n; i += 8 {
			if err := run.add(off, m.access(binary.LittleEndian.Uint64(buf[i:]))); err != nil {
				return err
			}
			off += PageSize
		}
	}
	return run.flush()
}

// access is the kind of access to a page.
type access int

const (
	untouched access = iota
	wasRead
	wasWritten
)

// access derives the kind from a page's word in the pagemap.
func (m *Map) access(word uint64) access {
	switch {
	case word&pagemapSwapped != 0 && word&pagemapFile == 0:
		return wasWritten
	case word&pagemapPresent == 0:
		return untouched
	case word&pagemapFile == 0 && word&pagemapExclusive != 0:
		return wasWritten
	case m.watched:
		return wasRead
	}
	return untouched // perhaps mapped along with a touched neighbour
}

// accessRun joins neighbouring pages of one kind.
type accessRun struct {
	fn            func(offset, length int64, written bool) error
	start, length int64
	kind          access
}

func (r *accessRun) add(off int64, kind access) error {
	if kind != r.kind {
		if err := r.flush(); err != nil {
			return err
		}
		r.start, r.kind = off, kind
	}
	r.length += PageSize
	return nil
}

func (r *accessRun) flush() error {
	start, length, kind := r.start, r.length, r.kind
	r.length = 0
	if kind == untouched || length == 0 {
		return nil
	}
	return r.fn(start, length, kind == wasWritten)
}

// Populate maps the pages of a run in bulk, as if each had been read or, with write, written
// without a change. The memory may be in use. It returns errors.ErrUnsupported if the kernel lacks
// support.
func (m *Map) Populate(offset, length int64, write bool) error {
	if offset < 0 || length <= 0 || offset > m.size-length || (offset|length)%PageSize != 0 {
		return fmt.Errorf("populate %d bytes at %d of %d: %w", length, offset, m.size, ErrOutside)
	}
	advice := unix.MADV_POPULATE_READ
	if write {
		advice = unix.MADV_POPULATE_WRITE
	}
	for {
		err := unix.Madvise(m.Linear()[offset:offset+length], advice)
		switch err {
		case unix.EINTR, unix.EAGAIN:
			continue
		case unix.EINVAL:
			err = &linux.Unsupported{Feature: "madvise(MADV_POPULATE_READ)", Since: "5.14", Err: err}
		}
		if err != nil {
			return fmt.Errorf("populate %d bytes of guest memory at %d: %w", length, offset, err)
		}
		return nil
	}
}
