package netdns

import (
	"encoding/binary"
	"errors"
	"io"
)

// maxMessage is the largest message that a frame over TCP can carry.
const maxMessage = 65535

// readFrame reads one message from a TCP stream (RFC 1035 4.2.2). After an error the stream is unusable.
func readFrame(r io.Reader) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(head[:]))
	if n == 0 {
		return nil, errors.New("a DNS message without a byte")
	}
	msg := make([]byte, n)
	if _, err := io.ReadFull(r, msg); err != nil {
		return nil, errors.Join(io.ErrUnexpectedEOF, err)
	}
	return msg, nil
}

// AppendFrame appends a message in the form for TCP. If the message is too long, which is an error
// of the caller, it appends no bytes.
func AppendFrame(dst, msg []byte) []byte {
	if len(msg) > maxMessage {
		return dst
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(msg)))
	return append(dst, msg...)
}
