package boot

import (
	"errors"
	"fmt"
	"io"
)

// ErrNotKernel is returned if the file is not a bootable x86-64 Linux kernel.
var ErrNotKernel = errors.New("not a bootable x86-64 kernel")

// memory is guest-physical memory, bounds-checked.
type memory interface {
	Slice(gpa uint64, n int) ([]byte, error)
	Size() int64
}

const maxSegments = 64

// loadKernel copies an ELF kernel's segments to their physical addresses and returns the entry
// point and the first address after the kernel.
func loadKernel(mem memory, r io.ReaderAt) (entry, end uint64, err error) {
	entry, programs, err := readELF(r)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: want an x86-64 ELF executable (vmlinux): %w", ErrNotKernel, err)
	}
	for _, p := range programs {
		if p.kind != elfLoad || p.memsz == 0 {
			continue
		}
		last, err := loadSegment(mem, r, p)
		if err != nil {
			return 0, 0, err
		}
		end = max(end, last)
	}
	if end == 0 || entry < highRAM || entry >= end {
		return 0, 0, fmt.Errorf("%w: entry point %#x is outside its segments", ErrNotKernel, entry)
	}
	return entry, end, nil
}

func loadSegment(mem memory, r io.ReaderAt, p programHeader) (end uint64, err error) {
	if p.paddr < highRAM || p.filesz > p.memsz || p.memsz > uint64(mem.Size()) {
		return 0, fmt.Errorf("%w: segment of %d bytes at %#x (memory: %d MiB)",
			ErrNotKernel, p.memsz, p.paddr, mem.Size()>>20)
	}
	b, err := mem.Slice(p.paddr, int(p.memsz))
	if err != nil {
		return 0, fmt.Errorf("kernel needs more memory than %d MiB: %w", mem.Size()>>20, err)
	}
	// Memory is fresh, so the bytes after Filesz are zero already.
	if err := readAt(r, b[:p.filesz], p.offset); err != nil {
		return 0, fmt.Errorf("read kernel segment at %#x: %w", p.paddr, err)
	}
	return p.paddr + p.memsz, nil
}

const pageMask = 0xfff

// loadInitrd places the initramfs as high as possible in low memory, where every kernel finds it
// and the kernel's own image does not reach.
func loadInitrd(mem memory, r io.ReaderAt, size int64, lowEnd, kernelEnd uint64) (addr uint64, err error) {
	if size <= 0 || uint64(size) > lowEnd {
		return 0, fmt.Errorf("initramfs of %d bytes does not fit into %d MiB", size, lowEnd>>20)
	}
	addr = (lowEnd - uint64(size)) &^ pageMask
	if addr < kernelEnd {
		return 0, fmt.Errorf("initramfs of %d MiB and kernel do not fit into %d MiB of memory", size>>20, lowEnd>>20)
	}
	b, err := mem.Slice(addr, int(size))
	if err != nil {
		return 0, fmt.Errorf("place initramfs: %w", err)
	}
	if _, err := io.ReadFull(io.NewSectionReader(r, 0, size), b); err != nil {
		return 0, fmt.Errorf("read initramfs: %w", err)
	}
	return addr, nil
}
