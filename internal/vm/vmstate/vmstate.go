package vmstate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Format is the version of the container. A reader accepts only its own.
const Format = 2

// Limits of Decode. A VM's state is some 20 KiB per vCPU.
const (
	MaxSize     = 4 << 20
	MaxSections = 256
	maxName     = 16
)

const (
	magic      = "FORKDVMS"
	headerSize = 16 // magic, format, number of sections
	entrySize  = 32 // name, version, length, checksum, reserved
)

var (
	// ErrFormat reports bytes that are not a state container, or one of another format version.
	ErrFormat = errors.New("not a VM state of a known format")
	// ErrDamaged reports a truncated container or a wrong checksum.
	ErrDamaged = errors.New("VM state is damaged")
	// ErrMissing reports that a required section is missing, or has another version.
	ErrMissing = errors.New("VM state lacks a section")
)

// Writer collects sections. The zero value is ready.
type Writer struct {
	count uint32
	body  []byte
}

// Add appends a section. Names are unique and have at most 16 bytes. A violation is a programming
// error. Decode finds it in every test.
func (w *Writer) Add(name string, version uint32, data []byte) {
	var e [entrySize]byte
	copy(e[:maxName], name)
	binary.LittleEndian.PutUint32(e[16:], version)
	binary.LittleEndian.PutUint32(e[20:], uint32(len(data)))
	binary.LittleEndian.PutUint32(e[24:], checksum(e[:24], data))
	w.body = append(append(w.body, e[:]...), data...)
	w.count++
}

// Bytes returns the finished container.
func (w *Writer) Bytes() []byte {
	out := make([]byte, headerSize, headerSize+len(w.body))
	copy(out, magic)
	binary.LittleEndian.PutUint32(out[8:], Format)
	binary.LittleEndian.PutUint32(out[12:], w.count)
	return append(out, w.body...)
}

func checksum(head, data []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE(head), crc32.IEEETable, data)
}

type section struct {
	version uint32
	data    []byte
}

// State is a decoded container.
type State struct{ sections map[string]section }

// Read decodes a container from r, at most MaxSize bytes. If r has a Size method, it is read with
// one call.
func Read(r io.Reader) (*State, error) {
	if s, ok := r.(interface{ Size() int64 }); ok && s.Size() <= MaxSize {
		b := make([]byte, s.Size())
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, fmt.Errorf("read VM state: %w", err)
		}
		return Decode(b)
	}
	b, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read VM state: %w", err)
	}
	return Decode(b)
}

// Decode checks the container and every checksum. The state aliases b.
func Decode(b []byte) (*State, error) {
	if len(b) > MaxSize {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrFormat, MaxSize)
	}
	if len(b) < headerSize || string(b[:8]) != magic {
		return nil, fmt.Errorf("%w: magic number is missing", ErrFormat)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != Format {
		return nil, fmt.Errorf("%w: format version %d, this version reads %d", ErrFormat, v, Format)
	}
	n := binary.LittleEndian.Uint32(b[12:])
	if n > MaxSections {
		return nil, fmt.Errorf("%w: %d sections, want at most %d", ErrDamaged, n, MaxSections)
	}
	s := &State{sections: make(map[string]section, n)}
	rest := b[headerSize:]
	for i := range n {
		var err error
		if rest, err = s.take(rest); err != nil {
			return nil, fmt.Errorf("section %d: %w", i, err)
		}
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%w: %d bytes behind the last section", ErrDamaged, len(rest))
	}
	return s, nil
}

func (s *State) take(b []byte) (rest []byte, err error) {
	if len(b) < entrySize {
		return nil, fmt.Errorf("%w: cut short in a section's head", ErrDamaged)
	}
	head, b := b[:entrySize], b[entrySize:]
	size := binary.LittleEndian.Uint32(head[20:])
	if uint64(size) > uint64(len(b)) {
		return nil, fmt.Errorf("%w: %d bytes announced, %d there", ErrDamaged, size, len(b))
	}
	data, rest := b[:size], b[size:]
	name := cString(head[:maxName])
	if checksum(head[:24], data) != binary.LittleEndian.Uint32(head[24:]) {
		return nil, fmt.Errorf("%w: checksum of %q does not match", ErrDamaged, name)
	}
	if _, twice := s.sections[name]; twice {
		return nil, fmt.Errorf("%w: %q is there twice", ErrDamaged, name)
	}
	s.sections[name] = section{binary.LittleEndian.Uint32(head[16:]), data}
	return rest, nil
}

func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// Has reports whether there is a section of any version. Use it for sections that older states
// lack.
func (s *State) Has(name string) bool {
	_, ok := s.sections[name]
	return ok
}

// Section returns the data of a section. It returns an error if the section is missing or has
// another version.
func (s *State) Section(name string, version uint32) ([]byte, error) {
	e, ok := s.sections[name]
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrMissing, name)
	}
	if e.version != version {
		return nil, fmt.Errorf("%w: %q has version %d, this version reads %d", ErrMissing, name, e.version, version)
	}
	return e.data, nil
}
