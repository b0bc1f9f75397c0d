package blk

import (
	"errors"

	"github.com/forkd/forkd/internal/vm/virtio"
)

// serve answers one request; virtio.Worker is the loop around it. If the request cannot even get a
// status, it returns an error. An error breaks the device.
func (d *Device) serve(c *virtio.Chain) (written uint32, err error) {
	r, err := parseRequest(c)
	if err != nil {
		return 0, err
	}
	if err = d.do(r); errors.Is(err, virtio.ErrLater) {
		return 0, err
	}
	c.Writable.CopyIn(r.dataIn, []byte{status(err)})
	return uint32(r.dataIn + 1), nil
}

func (d *Device) do(r request) error {
	switch r.op {
	case opIn:
		return d.read(r)
	case opOut:
		return d.write(r)
	case opFlush:
		return d.flush()
	case opGetID:
		r.chain.Writable.CopyIn(0, d.id[:min(idSize, r.dataIn)])
		return nil
	case opDiscard, opWriteZeroes:
		return d.dropRanges(r)
	default:
		return errors.ErrUnsupported
	}
}

func status(err error) byte {
	switch {
	case err == nil:
		return statusOK
	case errors.Is(err, errors.ErrUnsupported):
		return statusUnsupported
	default:
		return statusIOError
	}
}

func (d *Device) read(r request) error {
	if err := d.checkRange(r.sector, r.dataIn); err != nil {
		return err
	}
	return d.inSlices(int64(r.sector*SectorSize), int64(r.dataIn), dataSlice, func(off, at, n int64) error {
		d.scratch = r.chain.Writable.Range(d.scratch[:0], int(at), int(n))
		return readAll(d.backing.Load(), d.scratch, off)
	})
}

func (d *Device) write(r request) error {
	if d.backing.Load().readOnly {
		return errReadOnly
	}
	if err := d.checkRange(r.sector, r.dataOut); err != nil {
		return err
	}
	return d.inSlices(int64(r.sector*SectorSize), int64(r.dataOut), dataSlice, func(off, at, n int64) error {
		d.scratch = r.chain.Readable.Range(d.scratch[:0], headerSize+int(at), int(n))
		return writeAll(d.backing.Load(), d.scratch, off)
	})
}

// Bytes of a request processed between two checks for waiting callers. Data takes the time of
// copying; a dropped range takes the time of freeing its content.
const (
	dataSlice = 4 << 20
	dropSlice = 64 << 20
)

// inSlices processes a request for n bytes at off in pieces, because a long one must not delay a
// pause: such a request is put back, and done again from its beginning, with the same result.
// Pieces end at multiples of slice of the disk's offsets; at is a piece's offset in the request.
func (d *Device) inSlices(off, n, slice int64, do func(off, at, n int64) error) error {
	for at := int64(0); at < n; {
		if at > 0 && d.Leaving() {
			return virtio.ErrLater
		}
		k := min(n-at, slice-(off+at)%slice)
		if err := do(off+at, at, k); err != nil {
			return err
		}
		at += k
	}
	return nil
}

func (d *Device) flush() error {
	if d.backing.Load().readOnly {
		return nil // a read-only disk has no writes to flush
	}
	return d.backing.Load().Flush()
}

func (d *Device) dropRanges(r request) error {
	discard := d.backing.Load().discard
	if discard == nil {
		return errors.ErrUnsupported
	}
	segs, err := d.parseSegments(r)
	if err != nil {
		return err
	}
	for _, s := range segs {
		err := d.inSlices(int64(s.sector*SectorSize), int64(s.sectors)*SectorSize, dropSlice, func(off, _, n int64) error {
			if r.op == opDiscard {
				return discard.Discard(off, n)
			}
			return discard.WriteZeroes(off, n)
		})
		if err != nil {
			return err
		}
		if d.Leaving() {
			return virtio.ErrLater
		}
	}
	return nil
}
