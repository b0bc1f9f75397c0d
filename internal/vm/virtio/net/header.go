// Package net is the network device (virtio 1.2 §5.1): queues, the header
// before each frame, and state over save and restore. It holds no socket and no
// policy: frames go to an Engine and come from it.
package net

import "encoding/binary"

// HeaderSize is the length of Header in the rings, in bytes.
const HeaderSize = 12

// Bits of Header.Flags, and values of Header.GSOType (virtio 1.2 §5.1.6).
const (
	NeedsChecksum = 1 << 0
	DataValid     = 1 << 1

	GSONone  = 0
	GSOTCPv4 = 1
	GSOTCPv6 = 4
	GSOECN   = 0x80
)

// Header stands before each frame: what of its checksum and segmentation is
// left to whoever takes it.
type Header struct {
	Flags, GSOType uint8
	// HeaderLen is the length of all headers of a frame that is to be
	// segmented, GSOSize the payload of each segment, in bytes.
	HeaderLen, GSOSize uint16
	// ChecksumStart is where the checksum begins, ChecksumOffset where from
	// there it goes, in bytes.
	ChecksumStart, ChecksumOffset uint16
	// Buffers is how many receive buffers the frame lies in.
	Buffers uint16
}

// Encode writes h to p, which has HeaderSize bytes.
func (h Header) Encode(p []byte) {
	p[0], p[1] = h.Flags, h.GSOType
	le := binary.LittleEndian
	le.PutUint16(p[2:], h.HeaderLen)
	le.PutUint16(p[4:], h.GSOSize)
	le.PutUint16(p[6:], h.ChecksumStart)
	le.PutUint16(p[8:], h.ChecksumOffset)
	le.PutUint16(p[10:], h.Buffers)
}

// DecodeHeader reads a header from p, which has HeaderSize bytes. Nothing in it is checked.
func DecodeHeader(p []byte) Header {
	le := binary.LittleEndian
	return Header{
		Flags: p[0], GSOType: p[1],
		HeaderLen: le.Uint16(p[2:]), GSOSize: le.Uint16(p[4:]),
		ChecksumStart: le.Uint16(p[6:]), ChecksumOffset: le.Uint16(p[8:]), Buffers: le.Uint16(p[10:]),
	}
}

// Engine is the other end of the wire.
type Engine interface {
	// Transmit takes a frame that the guest sent. Frames come one at a time;
	// the bytes are the device's again when it returns. It must not wait for
	// anything but memory.
	Transmit(h Header, frame []byte)
	// Writable says that the guest has room for frames again, after Receive
	// refused one.
	Writable()
	// Close ends the engine and waits for its goroutines.
	Close()
}

// Guest is the guest's end, as an engine sees it.
type Guest interface {
	// Receive gives the guest a frame and reports whether it had room. If not,
	// the frame is not taken and Writable follows. Any goroutine may call it.
	Receive(h Header, frame []byte) bool
}
