package boot

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
)

// ErrNotKernel: the file is not an x86-64 Linux kernel that can be booted.
var ErrNotKernel = errors.New("not a bootable x86-64 kernel")

// memory is guest-physical memory, bounds-checked.
type memory interface {
	Slice(gpa uint64, n int) ([]byte, error)
	Size() int64
}

const maxSegments = 64

// loadKernel copies an ELF kernel's segments to their physical addresses and
// returns the entry point and the first address behind it.
func loadKernel(mem memory, r io.ReaderAt) (entry, end uint64, err error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: want an ELF file (vmlinux): %w", ErrNotKernel, err)
	}
	if f.Machine != elf.EM_X86_64 || f.Class != elf.ELFCLASS64 || f.Type != elf.ET_EXEC {
		return 0, 0, fmt.Errorf("%w: ELF file of machine %v, %v, %v", ErrNotKernel, f.Machine, f.Class, f.Type)
	}
	if len(f.Progs) > maxSegments {
		return 0, 0, fmt.Errorf("%w: %d program headers", ErrNotKernel, len(f.Progs))
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || p.Memsz == 0 {
			continue
		}
		last, err := loadSegment(mem, p)
		if err != nil {
			return 0, 0, err
		}
		end = max(end, last)
	}
	if end == 0 || f.Entry < highRAM || f.Entry >= end {
		return 0, 0, fmt.Errorf("%w: entry point %#x is outside its segments", ErrNotKernel, f.Entry)
	}
	return f.Entry, end, nil
}

func loadSegment(mem memory, p *elf.Prog) (end uint64, err error) {
	if p.Paddr < highRAM || p.Filesz > p.Memsz || p.Memsz > uint64(mem.Size()) {
		return 0, fmt.Errorf("%w: segment of %d bytes at %#x (memory: %d MiB)",
			ErrNotKernel, p.Memsz, p.Paddr, mem.Size()>>20)
	}
	b, err := mem.Slice(p.Paddr, int(p.Memsz))
	if err != nil {
		return 0, fmt.Errorf("kernel needs more memory than %d MiB: %w", mem.Size()>>20, err)
	}
	// Memory is fresh, so what lies behind Filesz is zero already.
	if _, err := io.ReadFull(io.NewSectionReader(p, 0, int64(p.Filesz)), b[:p.Filesz]); err != nil {
		return 0, fmt.Errorf("read kernel segment at %#x: %w", p.Paddr, err)
	}
	return p.Paddr + p.Memsz, nil
}

const pageMask = 0xfff

// loadInitrd places the initramfs as high as possible in low memory, where
// every kernel finds it and the kernel's own image does not reach.
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
