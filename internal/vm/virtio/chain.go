package virtio

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxChainBytes limits the data of one chain, because a pause waits for a request's end.
const MaxChainBytes = 64 << 20

const (
	descNext     = 1
	descWrite    = 2
	descIndirect = 4
)

// Violations of the descriptor rules (virtio 1.2 §2.7.5).
var (
	errDescIndex    = errors.New("descriptor index out of range")
	errChainLoop    = errors.New("descriptor chain longer than the queue")
	errChainBytes   = errors.New("descriptor chain over 64 MiB") // MaxChainBytes
	errChainOrder   = errors.New("readable descriptor after a writable one")
	errNoIndirect   = errors.New("indirect descriptor without the feature")
	errNested       = errors.New("indirect descriptor inside an indirect table")
	errIndirectNext = errors.New("indirect descriptor with NEXT")
	errIndirectLen  = errors.New("indirect table length")
)

// Chain is one request: guest memory for the device to read and to write.
// The slices are the guest's memory itself and may change at any moment.
type Chain struct {
	// Head identifies the chain to Push.
	Head uint16
	// Readable is the driver's data, Writable the buffers for the answer.
	Readable, Writable Buffers
	// Ranges are the memory the device may write, if the chain is by address. Then Readable and
	// Writable are empty, and MaxChainBytes does not apply, because no data is copied.
	Ranges []Range

	byAddress bool
	bytes     int
	links     int // descriptors read, indirect ones included
}

// Range is guest memory entirely in RAM.
type Range struct {
	GPA   GPA    // address of the first byte
	Bytes uint32 // length
}

type descriptor struct {
	addr  GPA
	len   uint32
	flags uint16
	next  uint16
}

func readDesc(table []byte, i uint16) descriptor {
	b := table[descSize*int(i):][:descSize]
	return descriptor{
		addr:  binary.LittleEndian.Uint64(b),
		len:   binary.LittleEndian.Uint32(b[8:]),
		flags: binary.LittleEndian.Uint16(b[12:]),
		next:  binary.LittleEndian.Uint16(b[14:]),
	}
}

// load follows the chain at head and checks it completely.
func (c *Chain) load(q *Queue, head uint16) error {
	c.Head, c.bytes, c.links = head, 0, 0
	c.Readable, c.Writable, c.Ranges = c.Readable[:0], c.Writable[:0], c.Ranges[:0]
	return c.follow(q, q.desc, q.size, head, false)
}

// follow walks one table. The number of links limits the walk: no chain may be longer than the
// queue, even in an indirect table (virtio 1.2 §2.7.5.3.1).
func (c *Chain) follow(q *Queue, table []byte, n, at uint16, inside bool) error {
	for {
		if at >= n {
			return errDescIndex
		}
		d := readDesc(table, at)
		if d.flags&descIndirect != 0 {
			return c.followIndirect(q, d, inside)
		}
		if c.links++; c.links > int(q.size) {
			return errChainLoop
		}
		if err := c.add(q.mem, d); err != nil {
			return err
		}
		if d.flags&descNext == 0 {
			return nil
		}
		at = d.next
	}
}

func (c *Chain) followIndirect(q *Queue, d descriptor, inside bool) error {
	n := d.len / descSize
	switch {
	case !q.indirect:
		return errNoIndirect
	case inside:
		return errNested
	case d.flags&descNext != 0: // virtio 1.2 §2.7.5.3.1
		return errIndirectNext
	case d.len%descSize != 0 || n == 0 || n > uint32(q.size):
		return fmt.Errorf("%w: %d bytes", errIndirectLen, d.len)
	}
	table, err := sliceAt(q.mem, d.addr, uint64(d.len))
	if err != nil {
		return fmt.Errorf("indirect table: %w", err)
	}
	return c.follow(q, table, uint16(n), 0, true)
}

// add appends the memory of one descriptor.
func (c *Chain) add(mem Memory, d descriptor) error {
	writable := d.flags&descWrite != 0
	if !writable && len(c.Writable) > 0 { // virtio 1.2 §2.7.4.2
		return errChainOrder
	}
	if d.len == 0 {
		return nil
	}
	if c.byAddress {
		return c.addRange(mem, d)
	}
	if uint64(c.bytes)+uint64(d.len) > MaxChainBytes {
		return errChainBytes
	}
	b, err := sliceAt(mem, d.addr, uint64(d.len))
	if err != nil {
		return err
	}
	c.bytes += len(b)
	if writable {
		c.Writable = append(c.Writable, b)
	} else {
		c.Readable = append(c.Readable, b)
	}
	return nil
}

// addRange records the memory range of one descriptor.
func (c *Chain) addRange(mem Memory, d descriptor) error {
	if _, err := sliceAt(mem, d.addr, uint64(d.len)); err != nil || d.flags&descWrite == 0 {
		return err
	}
	c.Ranges = append(c.Ranges, Range{GPA: d.addr, Bytes: d.len})
	return nil
}
