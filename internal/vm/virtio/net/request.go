package net

import (
	"errors"

	"github.com/forkd/forkd/internal/vm/virtio"
)

// Errors that break the device.
var (
	errWritable    = errors.New("writable buffer in the transmit queue")
	errShortPacket = errors.New("packet without a whole header")
	errRxBuffer    = errors.New("receive buffer with no room for a header, or readable")
	errControl     = errors.New("control command without a class, or without room for its answer")
)

// errFrame makes the device drop the frame.
var errFrame = errors.New("frame that does not fit its header or the wire")

// parseFrame copies a frame of the guest and checks its header and length, without parsing it. The
// frame is valid until the next call.
func (t *transmitter) parseFrame(c *virtio.Chain) (h Header, frame []byte, err error) {
	n := c.Readable.Len()
	switch {
	case len(c.Writable) > 0:
		return h, nil, errWritable
	case n < HeaderSize:
		return h, nil, errShortPacket
	case n < HeaderSize+etherSize, n > HeaderSize+maxFrame:
		return h, nil, errFrame
	}
	if n > len(t.buffer) {
		t.buffer = make([]byte, bufferSize(n))
	}
	b := t.buffer[:n]
	c.Readable.CopyOut(b, 0)
	h, frame = DecodeHeader(b), b[HeaderSize:]
	h.Buffers = 0
	if !h.fits(len(frame), t.features) {
		return h, nil, errFrame
	}
	return h, frame, nil
}

// bufferSize returns the size of a buffer for n bytes. An idle guest's few frames keep little
// memory.
func bufferSize(n int) int {
	const small = 2048
	if n <= small {
		return small
	}
	return HeaderSize + maxFrame
}

// fits checks a header for a frame of n bytes: its offsets lie in the frame, and it uses only
// negotiated features.
func (h Header) fits(n int, features uint64) bool {
	if h.Flags&NeedsChecksum != 0 {
		if features&featureCSUM == 0 || int(h.ChecksumStart)+int(h.ChecksumOffset)+2 > n {
			return false
		}
	}
	var need uint64
	switch h.GSOType &^ GSOECN {
	case GSONone:
		return h.GSOType == GSONone
	case GSOTCPv4:
		need = featureHostTSO4
	case GSOTCPv6:
		need = featureHostTSO6
	default:
		return false
	}
	if h.GSOType&GSOECN != 0 {
		need |= featureHostECN
	}
	// virtio 1.2 §5.1.6.2: a frame to be segmented also needs its checksum filled in.
	return features&need == need && h.Flags&NeedsChecksum != 0 && h.GSOSize > 0 && int(h.HeaderLen) <= n
}

// Control commands (virtio 1.2 §5.1.6.5).
const (
	controlOK, controlError = 0, 1

	classMAC      = 1
	commandMACSet = 1 // of classMAC: the guest's address

	controlHeader = 2 // class and command
)

// control executes a command of the guest and returns its answer.
func (d *Device) control(c *virtio.Chain) (answer uint8, err error) {
	if c.Readable.Len() < controlHeader || c.Writable.Len() < 1 {
		return 0, errControl
	}
	var b [controlHeader + 6]byte
	n := c.Readable.CopyOut(b[:], 0)
	mac := [6]byte(b[controlHeader:])
	switch {
	case b[0] != classMAC, b[1] != commandMACSet: // no other command was offered
		return controlError, nil
	case n != len(b), c.Readable.Len() != n, mac == [6]byte{}, mac[0]&1 != 0:
		return controlError, nil
	}
	d.rx.mu.Lock()
	defer d.rx.mu.Unlock()
	d.rx.mac = mac
	return controlOK, nil
}
