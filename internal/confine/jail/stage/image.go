package stage

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Layout of the executable. The first page of the file and of the memory has the header, the segments and the
// code. The rest has the data, followed by the calls.
const (
	page   = 0x1000
	codeAt = 0x400000
	entry  = 0x100
	dataAt = 0x600000
	// callsAt is a fixed address, known to the code.
	callsAt = 0x700000
)

// ErrScript: a call is too large, or the script does not end.
var ErrScript = errors.New("bad script of system calls")

// File returns an executable in memory that makes the calls in order. One of the calls must end its process. The
// caller closes the file.
func (s *Script) File() (*os.File, error) {
	image, err := s.image()
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("stage", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 all memfds were executable
		fd, err = unix.MemfdCreate("stage", unix.MFD_CLOEXEC)
	}
	if errors.Is(err, unix.EACCES) {
		err = fmt.Errorf("the host's vm.memfd_noexec forbids it, and must be 0 or 1 (sysctl): %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("make an executable in memory, which forkd-spawn starts VMs with: %w", err)
	}
	f := os.NewFile(uintptr(fd), "stage")
	if _, err := f.Write(image); err != nil {
		f.Close()
		return nil, fmt.Errorf("write an executable in memory: %w", err)
	}
	return f, nil
}

// Available returns an error if this host does not allow such executables.
func Available() error {
	s := &Script{}
	s.Add(Call{Number: unix.SYS_EXIT_GROUP})
	f, err := s.File()
	if err != nil {
		return err
	}
	return f.Close()
}

func (s *Script) image() ([]byte, error) {
	code, err := code()
	if err != nil {
		return nil, err
	}
	n := len(s.calls)
	if n == 0 || s.calls[n-1].Number != unix.SYS_EXIT_GROUP {
		return nil, fmt.Errorf("%w: its last call is no exit", ErrScript)
	}
	data := append(make([]byte, Slots), s.data...)
	if len(data) > callsAt-dataAt {
		return nil, fmt.Errorf("%w: %d bytes of data", ErrScript, len(data))
	}
	var calls []byte
	for i, c := range s.calls {
		b, ok := c.encode()
		if !ok || i+max(c.Then, c.Else, c.end) >= n {
			return nil, fmt.Errorf("%w: call %d (number %d) does not fit", ErrScript, i, c.Number)
		}
		calls = append(calls, b[:]...)
	}
	inData := (len(data) + page - 1) / page * page
	out := make([]byte, page+inData, page+inData+len(calls))
	copy(out, header(len(code), len(data), inData, len(calls)))
	copy(out[entry:page], code)
	copy(out[page:], data)
	return append(out, calls...), nil
}

// header returns the ELF header and the segments: code, data, calls, and a non-executable stack.
func header(code, data, inData, calls int) []byte {
	const headerBytes, segmentBytes = 64, 56
	segments := []elf.Prog64{
		segment(elf.PF_R|elf.PF_X, 0, codeAt, entry+code),
		segment(elf.PF_R|elf.PF_W, page, dataAt, data),
		segment(elf.PF_R, page+inData, callsAt, calls),
		{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W)},
	}
	h := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Entry: codeAt + entry, Phoff: headerBytes, Ehsize: headerBytes, Phentsize: segmentBytes, Phnum: uint16(len(segments)),
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	h.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, h) // a buffer accepts all writes
	_ = binary.Write(&b, binary.LittleEndian, segments)
	return b.Bytes()
}

// segment returns the header of one segment.
// #nosec G115 -- sizes of memory
func segment(flags elf.ProgFlag, off, at, size int) elf.Prog64 {
	return elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(flags), Off: uint64(off), Vaddr: uint64(at), Paddr: uint64(at),
		Filesz: uint64(size), Memsz: uint64(size), Align: page,
	}
}
