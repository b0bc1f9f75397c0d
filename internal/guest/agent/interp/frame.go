package interp

import (
	"encoding/binary"
	"fmt"
	"io"
)

// maxFrame limits one message from a driver. The code in the interpreter can write to the driver's
// pipe, so a frame may be hostile.
const maxFrame = 24 << 20

// readFrame reads one message: length, big endian, then as many bytes.
func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, fmt.Errorf("frame of %d bytes is more than %d", n, maxFrame)
	}
	// Memory grows with the bytes received, not with the announced length.
	body, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return nil, err
	}
	if len(body) != int(n) {
		return nil, io.ErrUnexpectedEOF
	}
	return body, nil
}

func writeFrame(w io.Writer, body []byte) error {
	if len(body) > maxFrame {
		return fmt.Errorf("frame of %d bytes is more than %d", len(body), maxFrame)
	}
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	_, err := w.Write(append(b, body...))
	return err
}
