package stage

import (
	"encoding/binary"
	"math"

	"golang.org/x/sys/unix"
)

// Script is a list of system calls with their data. The zero value is empty.
type Script struct {
	calls []Call
	data  []byte
}

// Call is one system call.
type Call struct {
	Number uintptr
	Args   []uint64
	// Keep stores the result. Kept uses the result of the last call with Keep as first argument.
	Keep, Kept bool
	// Slot is the index for its error number if it fails. It is below Slots.
	Slot int
	// Fine is an error that does not count as failure. If 0, every error does.
	Fine unix.Errno
	// Then and Else are the numbers of calls to skip after success, and after the Fine error.
	Then, Else int
	// end is the number of calls to skip after a failure: the rest of its group.
	end int
}

// Slots is the number of error numbers that a process can report, one byte each. Larger numbers become 255.
const Slots = 32

// Add adds a group of calls. If one fails, the rest of the group is skipped and the next group follows.
func (s *Script) Add(group ...Call) {
	for i, c := range group {
		c.end = len(group) - 1 - i
		s.calls = append(s.calls, c)
	}
}

// Until makes each call from index first on continue with the next added call if it fails.
func (s *Script) Until(first int) {
	for i := first; i < len(s.calls); i++ {
		s.calls[i].end = len(s.calls) - 1 - i
	}
}

// Errors returns the address of the error numbers, ordered by slot, for a call that reports them.
func Errors() uint64 { return dataAt }

// Bytes adds a copy of b and returns its address in the process. It pads the copy with zeros to keep later data
// aligned.
func (s *Script) Bytes(b []byte) uint64 {
	at := len(s.data)
	s.data = append(s.data, b...)
	for len(s.data)%wordBytes != 0 {
		s.data = append(s.data, 0)
	}
	return dataAt + Slots + uint64(at)
}

// String adds a copy with a terminating zero and returns its address.
func (s *Script) String(text string) uint64 { return s.Bytes(append([]byte(text), 0)) }

// Strings adds a list in the format of execve(2) and returns its address.
func (s *Script) Strings(list []string) uint64 {
	var pointers []byte
	for _, text := range list {
		pointers = binary.LittleEndian.AppendUint64(pointers, s.String(text))
	}
	return s.Bytes(binary.LittleEndian.AppendUint64(pointers, 0))
}

// Offsets of a call's fields, as read by code_amd64.s.
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
