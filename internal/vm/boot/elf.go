package boot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Offsets in a 64-bit ELF file (System V ABI, chapters 4 and 5). debug/elf is not used: it also
// requires valid sections, and links DWARF and three decompressors, whose tables each VMM would
// fill at its start.
const (
	elfHeaderSize     = 64
	programHeaderSize = 56

	elfMagic     = "\x7fELF"
	elfClass64   = 2
	elfLittle    = 1
	elfVersion   = 1
	elfExec      = 2    // ET_EXEC
	elfX86       = 0x3e // EM_X86_64
	elfLoad      = 1    // PT_LOAD
	elfMaxOffset = math.MaxInt64
)

// programHeader describes a segment and its physical address.
type programHeader struct {
	kind          uint32
	offset        uint64 // in the file
	paddr         uint64
	filesz, memsz uint64 // bytes in the file, and bytes in memory; the difference is zero-filled
}

// readELF reads the headers of an executable for x86-64. It does not check the values in program
// headers.
func readELF(r io.ReaderAt) (entry uint64, programs []programHeader, err error) {
	h := make([]byte, elfHeaderSize)
	if err := readAt(r, h, 0); err != nil {
		return 0, nil, fmt.Errorf("read header: %w", err)
	}
	if err := checkELF(h); err != nil {
		return 0, nil, err
	}
	le := binary.LittleEndian
	at, size, n := le.Uint64(h[32:]), uint64(le.Uint16(h[54:])), int(le.Uint16(h[56:]))
	switch {
	case n > maxSegments:
		return 0, nil, fmt.Errorf("%d program headers", n)
	case n > 0 && size < programHeaderSize:
		return 0, nil, fmt.Errorf("program headers of %d bytes", size)
	case n > 0 && at > elfMaxOffset: // otherwise a sum below could wrap
		return 0, nil, fmt.Errorf("program headers at %#x", at)
	}
	b := make([]byte, programHeaderSize)
	for i := range uint64(n) {
		if err := readAt(r, b, at+i*size); err != nil {
			return 0, nil, fmt.Errorf("read program header %d: %w", i, err)
		}
		programs = append(programs, decodeProgram(b))
	}
	return le.Uint64(h[24:]), programs, nil
}

// checkELF checks the kind of the file.
func checkELF(h []byte) error {
	le := binary.LittleEndian
	switch {
	case !bytes.HasPrefix(h, []byte(elfMagic)):
		return fmt.Errorf("it begins with % x", h[:len(elfMagic)])
	case h[4] != elfClass64 || h[5] != elfLittle:
		return fmt.Errorf("class %d, byte order %d", h[4], h[5])
	case h[6] != elfVersion:
		return fmt.Errorf("version %d", h[6])
	case le.Uint16(h[18:]) != elfX86 || le.Uint16(h[16:]) != elfExec:
		return fmt.Errorf("machine %d, type %d", le.Uint16(h[18:]), le.Uint16(h[16:]))
	}
	return nil
}

func decodeProgram(b []byte) programHeader {
	le := binary.LittleEndian
	return programHeader{
		kind: le.Uint32(b), offset: le.Uint64(b[8:]), paddr: le.Uint64(b[24:]),
		filesz: le.Uint64(b[32:]), memsz: le.Uint64(b[40:]),
	}
}

// readAt fills b from an untrusted offset of the file.
func readAt(r io.ReaderAt, b []byte, at uint64) error {
	if at > elfMaxOffset-uint64(len(b)) {
		return fmt.Errorf("offset %#x: %w", at, io.ErrUnexpectedEOF)
	}
	_, err := io.ReadFull(io.NewSectionReader(r, int64(at), int64(len(b))), b)
	return err
}
