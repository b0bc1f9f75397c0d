package guestmem

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/sys/uffd"
)

// PageSize is the size of a page in bytes, the unit of mapping and of the dirty bitmap.
const PageSize = 4096

// ErrOutside is wrapped by every error about an access outside guest memory.
var ErrOutside = errors.New("outside guest memory")

// Map is the guest memory of one VM. Any goroutine may read and write; only the owner may map and
// call Close.
type Map struct {
	base    unsafe.Pointer // start of the reservation
	size    int64
	regions []Region
	filed   bool // some of it is mapped from files
	kernel  Kernel
	pagemap once[*os.File]
	uffd    once[*uffd.UFFD]
	watched bool // it is registered with uffd
	// protected holds the pages armed by a tracker since they were last discarded, and perhaps
	// more; nil until then.
	protected extent.PageSet

	// discarding is held while memory is discarded. After Retain, watched and protected may be read
	// and changed without it.
	discarding sync.Mutex
	retained   int // if not 0, Discard does nothing
}

// Reserve reserves size bytes (a multiple of PageSize) of address space without memory. Access
// faults until MapAnonymous or MapFile.
func Reserve(size int64) (*Map, error) {
	if size <= 0 || size%PageSize != 0 {
		return nil, fmt.Errorf("reserve guest memory: %d bytes is no positive multiple of %d", size, PageSize)
	}
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve %d bytes of guest memory: %w", size, err)
	}
	return &Map{base: p, size: size, regions: Layout(size)}, nil
}

// Close unmaps the memory. Slices must not be used afterwards.
func (m *Map) Close() error {
	if m.base == nil {
		return nil
	}
	m.closeTracking()
	err := unix.MunmapPtr(m.base, uintptr(m.size))
	m.base = nil
	return err
}

// Size returns the amount of guest memory in bytes.
func (m *Map) Size() int64 { return m.size }

// Regions returns the guest-physical ranges in ascending order.
func (m *Map) Regions() []Region { return m.regions }

// HostAddr returns the start of a region in this process.
func (m *Map) HostAddr(r Region) uintptr {
	// SAFETY: only the number is used, to be handed to the kernel.
	return uintptr(m.base) + uintptr(r.Offset)
}

// MapAnonymous backs all of the memory with fresh zero pages.
func (m *Map) MapAnonymous() error { return m.MapZero(0, m.size) }

// MapZero backs length bytes at offset of the linear image with fresh zero pages.
func (m *Map) MapZero(offset, length int64) error {
	return m.mapOver(offset, length, -1, 0, unix.MAP_ANONYMOUS)
}

// MapFile backs length bytes at offset of the linear image with the file from fileOffset on,
// copy-on-write. The file must never shrink or be rewritten while mapped. All three numbers are
// multiples of PageSize. MapFile refuses a short file: touching a page beyond its end would kill
// the process.
func (m *Map) MapFile(offset, length int64, fd int, fileOffset int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("map guest memory: %w", err)
	}
	if fileOffset < 0 || fileOffset > st.Size || length > st.Size-fileOffset {
		return fmt.Errorf("map guest memory: the file has %d bytes, want %d from %d on", st.Size, length, fileOffset)
	}
	m.filed = true
	return m.mapOver(offset, length, fd, fileOffset, 0)
}

func (m *Map) mapOver(offset, length int64, fd int, fileOffset int64, flags int) error {
	if offset < 0 || length <= 0 || offset > m.size-length || (offset|length|fileOffset)%PageSize != 0 {
		return fmt.Errorf("map %d bytes at %d of %d: %w", length, offset, m.size, ErrOutside)
	}
	// SAFETY: the range lies within our own reservation, checked above, so MAP_FIXED replaces nothing else.
	at := unsafe.Add(m.base, offset)
	_, err := unix.MmapPtr(fd, fileOffset, at, uintptr(length), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE|flags)
	if err != nil {
		return fmt.Errorf("map %d bytes of guest memory at %d: %w", length, offset, err)
	}
	return nil
}

// Linear returns the whole memory in a snapshot's order, for saving it.
func (m *Map) Linear() []byte {
	// SAFETY: base and size describe our own mapping.
	return unsafe.Slice((*byte)(m.base), m.size)
}

// linearOffset finds n bytes at gpa within one region.
func (m *Map) linearOffset(gpa GPA, n int) (int64, bool) {
	if n < 0 {
		return 0, false
	}
	for _, r := range m.regions {
		if gpa >= r.GPA && gpa-r.GPA <= uint64(r.Size) && uint64(n) <= uint64(r.Size)-(gpa-r.GPA) {
			return r.Offset + int64(gpa-r.GPA), true
		}
	}
	return 0, false
}

// Slice returns the n bytes at gpa without a copy, valid until Close.
func (m *Map) Slice(gpa GPA, n int) ([]byte, error) {
	off, ok := m.linearOffset(gpa, n)
	if !ok {
		return nil, fmt.Errorf("%d bytes at %#x: %w", n, gpa, ErrOutside)
	}
	// SAFETY: linearOffset proved that [off, off+n) lies within the mapping.
	return unsafe.Slice((*byte)(unsafe.Add(m.base, off)), n), nil
}

// LoadUint32 reads an aligned 32-bit word with acquire semantics.
func (m *Map) LoadUint32(gpa GPA) (uint32, error) {
	p, err := m.word(gpa)
	if err != nil {
		return 0, err
	}
	return atomic.LoadUint32(p), nil
}

// StoreUint32 writes an aligned 32-bit word with release semantics.
func (m *Map) StoreUint32(gpa GPA, v uint32) error {
	p, err := m.word(gpa)
	if err != nil {
		return err
	}
	atomic.StoreUint32(p, v)
	return nil
}

func (m *Map) word(gpa GPA) (*uint32, error) {
	off, ok := m.linearOffset(gpa, 4)
	if !ok || gpa%4 != 0 {
		return nil, fmt.Errorf("word at %#x: %w", gpa, ErrOutside)
	}
	// SAFETY: in bounds and aligned: base is page aligned and offsets keep gpa's alignment.
	return (*uint32)(unsafe.Add(m.base, off)), nil
}
