package enginefake

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/engine/op"
	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/pagedigest"
)

// own returns the memory written by the guest.
func (f *fake) own() []byte { return f.mem[:min(5*4096, len(f.mem))] }

// Memory content of a booted guest.
const (
	warmMemory = "warm memory"
	warmAt     = 1 << 20
)

// bootedMemory sets the memory written by a booted guest.
func (f *fake) bootedMemory() {
	if f.maps != nil || f.mem != nil {
		return
	}
	f.size, f.mem = f.st.Shape.MemoryBytes(), make([]byte, 5*4096)
	for at := 0; at < len(f.mem); at += 4096 {
		f.mem[at] = 2
	}
}

// ReadAt reads the guest's memory.
func (f *fake) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.maps.ReadAt(p, off)
	if f.maps == nil && off <= warmAt && warmAt < off+int64(len(p)) {
		copy(p[warmAt-off:], warmMemory)
	}
	if own := f.own(); off < int64(len(own)) {
		copy(p, own[off:])
	}
	return n, err
}

// dupExtents returns the extents with duplicated files, which stay open for the life of the
// process.
func dupExtents(from []extent.Extent) (out op.ExtentImage, err error) {
	for _, s := range from {
		if s.File != nil {
			fd, err := unix.FcntlInt(s.File.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return nil, err
			}
			s.File = os.NewFile(uintptr(fd), "memory")
		}
		out = append(out, s)
	}
	return out, nil
}

// digest writes the current digests of memory and disks, if requested.
func (f *fake) digest(to *os.File) error {
	if to == nil {
		return nil
	}
	w := pagedigest.NewWriter(to)
	if err := w.Image(f, f.st.Shape.MemoryBytes(), nil); err != nil {
		return err
	}
	for _, d := range f.disks {
		if err := w.Image(d, d.Size(), nil); err != nil {
			return err
		}
	}
	return w.Flush()
}
