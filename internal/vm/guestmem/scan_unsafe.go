package guestmem

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers of include/uapi/linux/fs.h, Linux 6.7.
const (
	reqPagemapScan = 0xc0606610 // _IOWR('f', 16, struct pm_scan_arg)

	scanProtect    = 1 << 0 // PM_SCAN_WP_MATCHING
	scanCheckAsync = 1 << 1 // PM_SCAN_CHECK_WPASYNC

	pageWritten  = 1 << 1
	pageFile     = 1 << 2
	pagePresent  = 1 << 3
	pageSwapped  = 1 << 4
	pageZeroPage = 1 << 5
)

type pmScanArg struct {
	size, flags, start, end, walkEnd, vec, vecLen, maxPages uint64
	inverted, mask, anyOf, returned                         uint64
}

type pageRegion struct{ start, end, _ uint64 } // the last field holds the categories

// scanBatch is the maximum number of runs found by one call.
const scanBatch = 512

// scanner scans for runs of pages of one kind.
type scanner struct {
	pagemap *os.File
	arg     pmScanArg
	found   [scanBatch]pageRegion
}

// scan calls fn for runs of matching pages of [from, to), in ascending order. The numbers are
// offsets into m.
func (s *scanner) scan(m *Map, from, to int64, fn func(offset, length int64) error) error {
	base := uint64(m.HostAddr(Region{}))
	s.arg.size = uint64(unsafe.Sizeof(s.arg))
	s.arg.end = base + uint64(to)
	fd := s.pagemap.Fd() // not between taking the address and its use: a call may move the stack
	for at := base + uint64(from); at < s.arg.end; at = s.arg.walkEnd {
		s.arg.start, s.arg.walkEnd = at, 0
		// SAFETY: the kernel fills at most vecLen of found, which lives in s; it only looks at the
		// pages, or write-protects pages that are registered for that.
		s.arg.vec, s.arg.vecLen = uint64(uintptr(unsafe.Pointer(&s.found))), scanBatch
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, reqPagemapScan, uintptr(unsafe.Pointer(&s.arg)))
		if errno == unix.EINTR {
			s.arg.walkEnd = at
			continue
		}
		if errno != 0 {
			return errno
		}
		if s.arg.walkEnd <= at {
			return errors.New("PAGEMAP_SCAN made no progress")
		}
		for _, r := range s.found[:n] {
			if err := fn(int64(r.start-base), int64(r.end-r.start)); err != nil {
				return err
			}
		}
	}
	return nil
}
