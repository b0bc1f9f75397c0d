package netdns

import (
	"encoding/binary"
	"errors"
	"io"
)

// maxMessage is the largest message that a frame over TCP can carry.
const maxMessage = 65535

// maxQuery is the largest message accepted from a guest: a question, with room for EDNS0 options.
const maxQuery = 4096

// ReadFrame reads one message of a guest from a TCP stream (RFC 1035 4.2.2). It returns an error
// for a message larger than a query can be. The stream is then unusable.
func ReadFrame(r io.Reader) ([]byte, error) { return readFrame(r, maxQuery) }

func readFrame(r io.Reader, most int) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(head[:]))
	if n == 0 || n > most {
		return nil, errors.New("the length of a DNS message is out of bounds")
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
