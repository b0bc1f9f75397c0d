// Package updatewire has the messages on agentproto.UpdatePort, on which the host replaces the
// agent's program in a running guest. The host sends a header and the program. The guest answers
// once if it refuses. Otherwise it answers Going, and the connection ends when the new program runs;
// a second answer means that it could not run. All integers are big endian. Either side may be
// hostile, so each message has a fixed or bounded size.
package updatewire

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/forkd/forkd/internal/guest/agentproto"
)

// Limits of messages.
const (
	MaxProgram = 64 << 20 // bytes of a program
	MaxReason  = 1 << 10  // bytes of a reason
)

const (
	version    = 1
	headerSize = 4 + 8 + sha256.Size
)

// Header announces a program.
type Header struct {
	Size   int64             // bytes of the program
	Digest [sha256.Size]byte // SHA-256 of the program
}

// WriteHeader sends a header. The program follows it.
func WriteHeader(w io.Writer, h Header) error {
	var b [headerSize]byte
	b[0] = version
	binary.BigEndian.PutUint64(b[4:], uint64(h.Size))
	copy(b[12:], h.Digest[:])
	_, err := w.Write(b[:])
	return err
}

// ReadHeader receives a header.
func ReadHeader(r io.Reader) (h Header, err error) {
	var b [headerSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return Header{}, err
	}
	if b[0] != version || b[1]|b[2]|b[3] != 0 {
		return Header{}, agentproto.Violationf("an update of version %d, want %d", b[0], version)
	}
	size := binary.BigEndian.Uint64(b[4:])
	if size == 0 || size > MaxProgram {
		return Header{}, agentproto.Violationf("a program of %d bytes, want 1 to %d", size, MaxProgram)
	}
	h.Size = int64(size)
	copy(h.Digest[:], b[12:])
	return h, nil
}

// Code is the kind of an answer.
type Code uint8

// Codes of answers.
const (
	// Going means that the guest begins to run the program. If that works, the connection ends.
	Going Code = 1
	// Refused means that the old program goes on, as if it had not been asked.
	Refused Code = 2
)

// Answer is an answer of the guest.
type Answer struct {
	Code   Code   // Going or Refused
	Reason string // of a refusal; at most MaxReason bytes
}

// WriteAnswer sends an answer in one write. It cuts a long reason.
func WriteAnswer(w io.Writer, a Answer) error {
	reason := a.Reason[:min(len(a.Reason), MaxReason)]
	b := make([]byte, 4, 4+len(reason))
	b[0], b[1] = version, byte(a.Code)
	binary.BigEndian.PutUint16(b[2:], uint16(len(reason)))
	_, err := w.Write(append(b, reason...))
	return err
}

// ReadAnswer receives an answer. It returns io.EOF if the connection ends before one.
func ReadAnswer(r io.Reader) (Answer, error) {
	var b [4]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return Answer{}, err
	}
	a := Answer{Code: Code(b[1])}
	n := binary.BigEndian.Uint16(b[2:])
	if b[0] != version || a.Code != Going && a.Code != Refused || n > MaxReason {
		return Answer{}, agentproto.Violationf("an answer to an update with version %d, code %d and %d bytes", b[0], b[1], n)
	}
	reason := make([]byte, n)
	if _, err := io.ReadFull(r, reason); err != nil {
		return Answer{}, fmt.Errorf("read the reason of an answer: %w", err)
	}
	a.Reason = string(reason)
	return a, nil
}
