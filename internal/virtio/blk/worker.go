package blk

import (
	"errors"

	"github.com/forkd/forkd/internal/virtio"
)

// serve answers one request; virtio.Worker is the loop around it. An error
// means that not even a status can be given, and breaks the device.
func (d *Device) serve(c *virtio.Chain) (written uint32, err error) {
	r, err := parseRequest(c)
	if err != nil {
		return 0, err
	}
	c.Writable.CopyIn(r.dataIn, []byte{status(d.do(r))})
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
	d.scratch = r.chain.Writable.Range(d.scratch[:0], 0, r.dataIn)
	return readAll(d.backend, d.scratch, int64(r.sector*SectorSize))
}

func (d *Device) write(r request) error {
	if d.readOnly {
		return errReadOnly
	}
	if err := d.checkRange(r.sector, r.dataOut); err != nil {
		return err
	}
	d.scratch = r.chain.Readable.Range(d.scratch[:0], headerSize, r.dataOut)
	return writeAll(d.backend, d.scratch, int64(r.sector*SectorSize))
}

func (d *Device) flush() error {
	if d.readOnly {
		return nil // nothing was ever written
	}
	return d.backend.Flush()
}

func (d *Device) dropRanges(r request) error {
	if d.discard == nil {
		return errors.ErrUnsupported
	}
	segs, err := d.parseSegments(r)
	if err != nil {
		return err
	}
	for _, s := range segs {
		off, n := int64(s.sector*SectorSize), int64(s.sectors)*SectorSize
		if r.op == opDiscard {
			err = d.discard.Discard(off, n)
		} else {
			err = d.discard.WriteZeroes(off, n, s.flags&segUnmap != 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
