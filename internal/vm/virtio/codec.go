package virtio

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxStateBytes caps the encoded state of a transport with its device.
const MaxStateBytes = 64 << 10

// ErrBadState is wrapped by every error about a saved state.
var ErrBadState = errors.New("bad virtio state")

// StateWriter appends little-endian fields.
type StateWriter struct{ b []byte }

// Bytes returns the written bytes.
func (w *StateWriter) Bytes() []byte { return w.b }

func (w *StateWriter) U8(v uint8)   { w.b = append(w.b, v) }
func (w *StateWriter) U16(v uint16) { w.b = binary.LittleEndian.AppendUint16(w.b, v) }
func (w *StateWriter) U32(v uint32) { w.b = binary.LittleEndian.AppendUint32(w.b, v) }
func (w *StateWriter) U64(v uint64) { w.b = binary.LittleEndian.AppendUint64(w.b, v) }

// Bool writes one byte, 0 or 1.
func (w *StateWriter) Bool(v bool) {
	if v {
		w.U8(1)
	} else {
		w.U8(0)
	}
}

// Blob writes a length and the bytes.
func (w *StateWriter) Blob(p []byte) {
	w.U32(uint32(len(p)))
	w.b = append(w.b, p...)
}

// StateReader reads fields from an untrusted encoding. After the first error every field is zero,
// and Close returns the error.
type StateReader struct {
	b   []byte
	err error
}

// NewStateReader returns a reader of b. If b is over the limit, the reader fails.
func NewStateReader(b []byte) *StateReader {
	r := &StateReader{b: b}
	if len(b) > MaxStateBytes {
		r.fail("is %d bytes, at most %d are allowed", len(b), MaxStateBytes)
	}
	return r
}

func (r *StateReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrBadState, fmt.Sprintf(format, args...))
	}
	r.b = nil
}

// zeros supplies the fields of a failed reader.
var zeros [8]byte

func (r *StateReader) take(n int) []byte {
	if r.err == nil && len(r.b) < n {
		r.fail("cut short")
	}
	if r.err != nil {
		return zeros[:n]
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *StateReader) U8() uint8   { return r.take(1)[0] }
func (r *StateReader) U16() uint16 { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *StateReader) U32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *StateReader) U64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

// Bool reads a byte. It must be 0 or 1.
func (r *StateReader) Bool() bool {
	v := r.U8()
	if v > 1 {
		r.fail("flag is %d", v)
	}
	return v == 1
}

// Blob reads a length and that many bytes. The result aliases the input.
func (r *StateReader) Blob() []byte {
	n := r.U32()
	if uint64(n) > uint64(len(r.b)) {
		r.fail("cut short")
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

// Version reads a format version and refuses any but want.
func (r *StateReader) Version(want uint16) {
	if v := r.U16(); r.err == nil && v != want {
		r.fail("version is %d, this build reads %d", v, want)
	}
}

// Check records an error if ok is false.
func (r *StateReader) Check(ok bool, format string, args ...any) {
	if !ok {
		r.fail(format, args...)
	}
}

// Close returns the first error. Remaining bytes are an error.
func (r *StateReader) Close() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes too many", len(r.b))
	}
	return r.err
}
