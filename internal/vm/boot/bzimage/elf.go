package bzimage

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// checkELF refuses an ELF if a VMM for x86-64 cannot load it, and cuts off the relocation table
// after a relocatable kernel. It reads the headers itself, because debug/elf also reads section
// names, which are not needed here.
func checkELF(b []byte) ([]byte, error) {
	if !bytes.HasPrefix(b, elfMagic) {
		return nil, fmt.Errorf("its payload unpacks to %s, not to an ELF file", describe(b))
	}
	h, err := readHeader(b)
	if err != nil {
		return nil, err
	}
	end := max(uint64(binary.Size(h)), h.Phoff+uint64(h.Phnum)*uint64(h.Phentsize))
	loads := 0
	for i := range uint64(h.Phnum) {
		p, err := readProgram(b, h.Phoff+i*uint64(h.Phentsize))
		if err != nil {
			return nil, err
		}
		if elf.ProgType(p.Type) == elf.PT_LOAD {
			loads++
		}
		segEnd := p.Off + p.Filesz
		if segEnd < p.Off || segEnd > uint64(len(b)) {
			return nil, fmt.Errorf("it is cut short: segment %d ends at byte %d, the file at %d", i, segEnd, len(b))
		}
		end = max(end, segEnd)
	}
	if loads == 0 {
		return nil, fmt.Errorf("it is an ELF file with nothing to load")
	}
	return b[:max(end, sectionsEnd(b, h, end))], nil
}

func readHeader(b []byte) (elf.Header64, error) {
	var h elf.Header64
	if len(b) < binary.Size(h) {
		return h, fmt.Errorf("it is an ELF file cut short at %d bytes", len(b))
	}
	if elf.Class(b[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(b[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return h, fmt.Errorf("it is an ELF file, but not a 64-bit little-endian one")
	}
	if _, err := binary.Decode(b, binary.LittleEndian, &h); err != nil {
		return h, fmt.Errorf("read ELF header: %w", err)
	}
	switch {
	case elf.Machine(h.Machine) != elf.EM_X86_64:
		return h, fmt.Errorf("it is an ELF file for %v", elf.Machine(h.Machine))
	case elf.Type(h.Type) != elf.ET_EXEC:
		// User-space programs and libraries are ET_DYN these days, modules are ET_REL.
		return h, fmt.Errorf("it is an ELF file of type %v, a kernel is ET_EXEC", elf.Type(h.Type))
	case h.Phnum == 0 || int(h.Phentsize) < binary.Size(elf.Prog64{}):
		return h, fmt.Errorf("it is an ELF file without usable program headers")
	case h.Phoff > uint64(len(b)):
		return h, fmt.Errorf("it is cut short: its program headers are at byte %d, the file ends at %d", h.Phoff, len(b))
	}
	return h, nil
}

func readProgram(b []byte, at uint64) (elf.Prog64, error) {
	var p elf.Prog64
	if at > uint64(len(b)) || uint64(len(b))-at < uint64(binary.Size(p)) {
		return p, fmt.Errorf("it is cut short: a program header is at byte %d, the file ends at %d", at, len(b))
	}
	_, err := binary.Decode(b[at:], binary.LittleEndian, &p)
	return p, err
}

// sectionsEnd returns the end of the section table. If the table is out of the file's bounds (a
// stripped file may have such a table), it returns none.
func sectionsEnd(b []byte, h elf.Header64, none uint64) uint64 {
	end := h.Shoff + uint64(h.Shnum)*uint64(h.Shentsize)
	if h.Shoff == 0 || h.Shoff > uint64(len(b)) || end > uint64(len(b)) {
		return none
	}
	for i := range uint64(h.Shnum) {
		var s elf.Section64
		at := h.Shoff + i*uint64(h.Shentsize)
		if uint64(len(b))-at < uint64(binary.Size(s)) {
			break
		}
		if _, err := binary.Decode(b[at:], binary.LittleEndian, &s); err != nil {
			break
		}
		if elf.SectionType(s.Type) == elf.SHT_NOBITS {
			continue
		}
		if e := s.Off + s.Size; e >= s.Off && e <= uint64(len(b)) {
			end = max(end, e)
		}
	}
	return end
}
