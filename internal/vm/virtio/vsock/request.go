package vsock

import (
	"encoding/binary"
	"errors"

	"github.com/forkd/forkd/internal/vm/virtio"
)

const (
	headerSize = 44
	typeStream = 1
)

// Operations (virtio 1.2 §5.10.6).
const (
	opRequest       = 1
	opResponse      = 2
	opReset         = 3
	opShutdown      = 4
	opData          = 5
	opCreditUpdate  = 6
	opCreditRequest = 7
)

// Flags of opShutdown: the sender will receive no more, or send no more.
const (
	shutReceive = 1
	shutSend    = 2
	shutBoth    = shutReceive | shutSend
)

var (
	errShortPacket = errors.New("socket packet without a whole header")
	errPacketLen   = errors.New("socket packet shorter than its header says")
	errWritable    = errors.New("writable buffer in the transmit queue")
	errRxBuffer    = errors.New("receive buffer with no room for a header or readable")
	errEventBuffer = errors.New("event buffer with no room for an event or readable")
)

// header is a packet header, copied out of guest memory.
type header struct {
	srcCID, dstCID    uint64
	srcPort, dstPort  uint32
	len               uint32
	kind, op          uint16
	flags             uint32
	bufAlloc, fwdBack uint32 // the sender's credit: its buffer size and the bytes it consumed
}

func decodeHeader(b *[headerSize]byte) header {
	le := binary.LittleEndian
	return header{
		srcCID: le.Uint64(b[0:]), dstCID: le.Uint64(b[8:]),
		srcPort: le.Uint32(b[16:]), dstPort: le.Uint32(b[20:]),
		len: le.Uint32(b[24:]), kind: le.Uint16(b[28:]), op: le.Uint16(b[30:]),
		flags: le.Uint32(b[32:]), bufAlloc: le.Uint32(b[36:]), fwdBack: le.Uint32(b[40:]),
	}
}

func (h header) encode(b *[headerSize]byte) {
	le := binary.LittleEndian
	le.PutUint64(b[0:], h.srcCID)
	le.PutUint64(b[8:], h.dstCID)
	le.PutUint32(b[16:], h.srcPort)
	le.PutUint32(b[20:], h.dstPort)
	le.PutUint32(b[24:], h.len)
	le.PutUint16(b[28:], h.kind)
	le.PutUint16(b[30:], h.op)
	le.PutUint32(b[32:], h.flags)
	le.PutUint32(b[36:], h.bufAlloc)
	le.PutUint32(b[40:], h.fwdBack)
}

// parsePacket checks the packet. The payload is the len bytes after the header.
func parsePacket(c *virtio.Chain) (header, error) {
	if len(c.Writable) > 0 {
		return header{}, errWritable
	}
	var b [headerSize]byte
	if c.Readable.CopyOut(b[:], 0) != headerSize {
		return header{}, errShortPacket
	}
	h := decodeHeader(&b)
	if uint64(h.len) > uint64(c.Readable.Len()-headerSize) {
		return header{}, errPacketLen
	}
	return h, nil
}
