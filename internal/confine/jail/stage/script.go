package stage

import (
	"encoding/binary"
	"math"

	"golang.org/x/sys/unix"
)

// Script is a list of system calls, and the data that they are given. The zero value is empty.
type Script struct {
	calls []Call
	data  []byte
}

// Call is one system call.
type Call struct {
	Number uintptr
	Args   []uint64
	// Keep remembers the result; Kept has that, of the last call that was to keep its own, as first argument.
	Keep, Kept bool
	// Slot is where its error number goes if it fails: below Slots.
	Slot int
	// Fine is an error that is none; 0: each is one.
	Fine unix.Errno
	// Then and Else are how many of the next calls are left out after it was made, and after its Fine error.
	Then, Else int
	// end is how many are left out if it failed: the rest of its group.
	end int
}

// Slots is how many error numbers a process can tell, of one byte each. What does not fit is 255.
const Slots = 32

// Add adds calls, of which the first that fails ends them all: what follows is the next group.
func (s *Script) Add(group ...Call) {
	for i, c := range group {
		c.end = len(group) - 1 - i
		s.calls = append(s.calls, c)
	}
}

// Until has each call from the first on that fails go on with what is added next.
func (s *Script) Until(first int) {
	for i := first; i < len(s.calls); i++ {
		s.calls[i].end = len(s.calls) - 1 - i
	}
}

// Len is how many calls there are.
func (s *Script) Len() int { return len(s.calls) }

// Errors are the addresses of the error numbers by slot, for a call that tells them.
func Errors() uint64 { return dataAt }

// Bytes is the address that a copy of b will have, which ends with as many zeros as keep what comes next aligned.
func (s *Script) Bytes(b []byte) uint64 {
	at := len(s.data)
	s.data = append(s.data, b...)
	for len(s.data)%wordBytes != 0 {
		s.data = append(s.data, 0)
	}
	return dataAt + Slots + uint64(at)
}

// String is the address of a copy that ends with a zero.
func (s *Script) String(text string) uint64 { return s.Bytes(append([]byte(text), 0)) }

// Strings is the address of a list as execve(2) wants it.
func (s *Script) Strings(list []string) uint64 {
	var pointers []byte
	for _, text := range list {
		pointers = binary.LittleEndian.AppendUint64(pointers, s.String(text))
	}
	return s.Bytes(binary.LittleEndian.AppendUint64(pointers, 0))
}

// Where a call has its fields: what code_amd64.s reads.
const (
	atNumber = 0
	atFlags  = 4
	atThen   = 5
	atFine   = 6
	atElse   = 8
	atSlot   = 9
	atEnd    = 12
	atArgs   = 16

	callBytes = 64
	wordBytes = 8
	maxArgs   = 6

	flagKeep = 1
	flagKept = 2
)

func (c Call) encode() (b [callBytes]byte, ok bool) {
	fits := len(c.Args) <= maxArgs && c.Slot >= 0 && c.Slot < Slots && c.Number <= math.MaxUint32 &&
		c.Then >= 0 && c.Then <= math.MaxUint8 && c.Else >= 0 && c.Else <= math.MaxUint8 && c.Fine <= math.MaxUint16
	if !fits {
		return b, false
	}
	le := binary.LittleEndian
	le.PutUint32(b[atNumber:], uint32(c.Number))
	if c.Keep {
		b[atFlags] |= flagKeep
	}
	if c.Kept {
		b[atFlags] |= flagKept
	}
	b[atThen], b[atElse], b[atSlot] = byte(c.Then), byte(c.Else), byte(c.Slot)
	le.PutUint16(b[atFine:], uint16(c.Fine))
	le.PutUint32(b[atEnd:], uint32(c.end)) // #nosec G115 -- no more than there are calls
	for i, a := range c.Args {
		le.PutUint64(b[atArgs+i*wordBytes:], a)
	}
	return b, true
}
