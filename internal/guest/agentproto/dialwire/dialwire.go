// Package dialwire is the exchange between host and agent before the bytes of a connection to a
// port in the guest. On the vsock port agentproto.DialPort, the host sends one request and the
// agent one answer, both of fixed size. After the answer OK, the connection belongs to the server
// in the guest. The bytes are described in docs/inside/formats/agent-protocol.md.
//
// A reader must not read beyond the message, because the following bytes belong to the caller.
package dialwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Version is the first byte of each message.
const Version = 1

// Family selects the addresses of the guest to try.
type Family uint8

const (
	Any  Family = 0 // 127.0.0.1, ::1, then the addresses of eth0
	IPv4 Family = 4
	IPv6 Family = 6
)

// Request asks for a connection to a TCP port in the guest.
type Request struct {
	Port   uint16 // big endian on the wire
	Family Family // Any, IPv4 or IPv6
}

// Code is the answer.
type Code uint8

const (
	OK      Code = 0 // connected
	Refused Code = 1 // no server listens on the port
	Timeout Code = 2 // a server listens or packets are dropped, but no accept in time
	Invalid Code = 3 // the agent does not know this request
	Busy    Code = 4 // the agent has reached its limit of connections
)

func (c Code) String() string {
	switch c {
	case OK:
		return "ok"
	case Refused:
		return "refused"
	case Timeout:
		return "timeout"
	case Invalid:
		return "invalid"
	case Busy:
		return "busy"
	}
	return fmt.Sprintf("code %d", uint8(c))
}

// Sizes of the messages.
const (
	RequestBytes = 8 // version, family, port big endian, four zero bytes
	AnswerBytes  = 4 // version, code, two zero bytes
)

// ErrVersion is the error for a message of another version.
var ErrVersion = errors.New("a message of another version")

var errMalformed = errors.New("a malformed message")

// WriteRequest sends a request in one write.
func WriteRequest(w io.Writer, r Request) error {
	b := [RequestBytes]byte{Version, byte(r.Family)}
	binary.BigEndian.PutUint16(b[2:], r.Port)
	_, err := w.Write(b[:])
	return err
}

// ReadRequest receives a request.
func ReadRequest(r io.Reader) (Request, error) {
	var b [RequestBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return Request{}, err
	}
	req := Request{Port: binary.BigEndian.Uint16(b[2:]), Family: Family(b[1])}
	switch {
	case b[0] != Version:
		return Request{}, ErrVersion
	case req.Port == 0, req.Family != Any && req.Family != IPv4 && req.Family != IPv6, [4]byte(b[4:]) != [4]byte{}:
		return Request{}, errMalformed
	}
	return req, nil
}

// WriteAnswer sends an answer in one write.
func WriteAnswer(w io.Writer, c Code) error {
	_, err := w.Write([]byte{Version, byte(c), 0, 0})
	return err
}

// ReadAnswer receives an answer. It returns unknown codes unchanged.
func ReadAnswer(r io.Reader) (Code, error) {
	var b [AnswerBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, err
	}
	switch {
	case b[0] != Version:
		return 0, ErrVersion
	case b[2] != 0 || b[3] != 0:
		return 0, errMalformed
	}
	return Code(b[1]), nil
}
