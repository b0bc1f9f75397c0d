// Package net is the network device (virtio 1.2 §5.1): queues, the header before each frame, and
// state over save and restore. It has no socket and no policy: it exchanges frames with an Engine.
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

// Header precedes each frame. It describes the checksum and segmentation work left to the receiver.
type Header struct {
	// Flags combines NeedsChecksum and DataValid. GSOType is GSONone for a frame that needs no
	// segmentation, otherwise the protocol, with GSOECN if its segments have that bit.
	Flags, GSOType uint8
	// HeaderLen is the length of all headers of a frame to be segmented, GSOSize the payload of
	// each segment, in bytes.
	HeaderLen, GSOSize uint16
	// ChecksumStart is the offset at which the checksummed bytes begin. ChecksumOffset is the
	// position of the checksum relative to it, in bytes.
	ChecksumStart, ChecksumOffset uint16
	// Buffers is the number of receive buffers of the frame.
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

// DecodeHeader reads a header from p, which has HeaderSize bytes. It does not validate it.
func DecodeHeader(p []byte) Header {
	le := binary.LittleEndian
	return Header{
		Flags: p[0], GSOType: p[1],
		HeaderLen: le.Uint16(p[2:]), GSOSize: le.Uint16(p[4:]),
		ChecksumStart: le.Uint16(p[6:]), ChecksumOffset: le.Uint16(p[8:]), Buffers: le.Uint16(p[10:]),
	}
}

// Engine is the other end of the guest's link.
type Engine interface {
	// Transmit processes a frame from the guest. Frames come one at a time. The bytes are the
	// device's again when Transmit returns. It must not wait for anything except memory.
	Transmit(h Header, frame []byte)
	// Writable is called when the guest has room for frames again, after Receive refused one.
	Writable()
	// Close ends the engine and waits for its goroutines.
	Close()
}

// Guest is the guest's end of the link, for the engine.
type Guest interface {
	// Receive passes a frame to the guest and reports whether it had room. If not, the frame is not
	// taken and Writable follows. Any goroutine may call it.
	Receive(h Header, frame []byte) bool
}
