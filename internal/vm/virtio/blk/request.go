package blk

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/forkd/forkd/internal/vm/virtio"
)

// Request types and status values (virtio 1.2 §5.2.6).
const (
	opIn          = 0
	opOut         = 1
	opFlush       = 4
	opGetID       = 8
	opDiscard     = 11
	opWriteZeroes = 13

	statusOK          = 0
	statusIOError     = 1
	statusUnsupported = 2
)

const (
	headerSize  = 16
	segmentSize = 16
	segUnmap    = 1
)

var (
	errNoHeader = errors.New("block request without a whole header")
	errNoStatus = errors.New("block request without room for a status")
	errReadOnly = errors.New("disk is read-only")
	errRange    = errors.New("sector range outside the disk or not whole sectors")
)

// request is a parsed request. Type and position are copies; the data stays in guest memory.
type request struct {
	chain   *virtio.Chain
	op      uint32
	sector  uint64
	dataOut int // readable bytes after the header
	dataIn  int // writable bytes before the status byte
}

// parseRequest parses a chain. It assumes no particular split of a request into descriptors (virtio
// 1.2 §2.7.4).
func parseRequest(c *virtio.Chain) (request, error) {
	var h [headerSize]byte
	if c.Readable.CopyOut(h[:], 0) != headerSize {
		return request{}, errNoHeader
	}
	in := c.Writable.Len()
	if in == 0 {
		return request{}, errNoStatus
	}
	return request{
		chain:   c,
		op:      binary.LittleEndian.Uint32(h[:]),
		sector:  binary.LittleEndian.Uint64(h[8:]),
		dataOut: c.Readable.Len() - headerSize,
		dataIn:  in - 1,
	}, nil
}

// checkRange returns an error unless the range is whole sectors inside the disk.
func (d *Device) checkRange(sector uint64, n int) error {
	if n%SectorSize != 0 || !d.inside(sector, uint64(n)/SectorSize) {
		return errRange
	}
	return nil
}

func (d *Device) inside(sector, n uint64) bool {
	all := d.backing.Load().sectors
	return sector <= all && n <= all-sector
}

// segment is one range of a discard or write-zeroes request.
type segment struct {
	sector  uint64
	sectors uint32
	flags   uint32
}

// parseSegments checks all ranges before any of them is used.
func (d *Device) parseSegments(r request) ([]segment, error) {
	if r.dataOut == 0 || r.dataOut%segmentSize != 0 || r.dataOut/segmentSize > maxDiscardSegs {
		return nil, fmt.Errorf("discard with %d bytes of ranges", r.dataOut)
	}
	var b [maxDiscardSegs * segmentSize]byte
	r.chain.Readable.CopyOut(b[:r.dataOut], headerSize)
	segs := make([]segment, 0, r.dataOut/segmentSize)
	for p := b[:r.dataOut]; len(p) > 0; p = p[segmentSize:] {
		s := segment{binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint32(p[8:]), binary.LittleEndian.Uint32(p[12:])}
		// virtio 1.2 §5.2.6.2: unmap belongs to write-zeroes, the rest is reserved.
		if s.flags&^segUnmap != 0 || s.flags != 0 && r.op == opDiscard {
			return nil, fmt.Errorf("discard flags %#x: %w", s.flags, errors.ErrUnsupported)
		}
		if s.sectors > maxDiscardSectors || !d.inside(s.sector, uint64(s.sectors)) {
			return nil, errRange
		}
		segs = append(segs, s)
	}
	return segs, nil
}
