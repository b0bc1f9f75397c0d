package netproxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Source is the place of a name.
type Source string

// Sources.
const (
	SNI  Source = "sni"
	Host Source = "host"
)

// Head contains the bytes read from a flow, and its name.
type Head struct {
	// Bytes must be passed on unchanged, before the rest of the flow.
	Bytes  []byte
	Name   string // empty if Peek returns an error
	Source Source // SNI or Host
	// Ended is true if the guest sends no more bytes.
	Ended bool
}

// maxLooked limits the cost of a flow in small pieces, in bytes: each piece makes all earlier bytes
// be parsed again. A hello of 5 KiB may come byte by byte, one of MaxHead in packets.
const maxLooked = 16 << 20

// Peek reads the name of a flow from its first bytes, within limit. On ErrNoName, Head still
// contains the bytes read.
func Peek(c net.Conn, limit time.Duration) (h Head, err error) {
	c.SetReadDeadline(time.Now().Add(limit))
	defer c.SetReadDeadline(time.Time{})
	buf := make([]byte, 4096)
	for looked := 0; ; looked += len(h.Bytes) {
		n, err := c.Read(buf)
		h.Bytes = append(h.Bytes, buf[:n]...)
		h.Ended = errors.Is(err, io.EOF)
		var nameErr error
		if n > 0 {
			if h.Name, h.Source, nameErr = Name(h.Bytes); nameErr == nil {
				return h, nil
			}
			if !errors.Is(nameErr, errMore) {
				return h, nameErr
			}
		}
		switch {
		case err != nil:
			return h, fmt.Errorf("%w: %d bytes came: %w", ErrNoName, len(h.Bytes), err)
		case len(h.Bytes) > MaxHead, looked > maxLooked:
			return h, fmt.Errorf("%w: it is not in the first %d", ErrNoName, len(h.Bytes))
		case len(h.Bytes) > len(buf)/2 && len(buf) < MaxHead:
			buf = make([]byte, 2*len(buf))
		}
	}
}

// Name reads the name from the first bytes of a flow. It returns ErrNoName, or another error while
// more bytes may complete the name.
func Name(b []byte) (string, Source, error) {
	if len(b) == 0 {
		return "", "", errMore
	}
	if b[0] == recordHandshake {
		name, err := helloName(b)
		return name, SNI, err
	}
	name, err := requestName(b)
	if errors.Is(err, errMore) && !couldBeRequest(b) {
		err = fmt.Errorf("%w: neither TLS nor HTTP", ErrNoName)
	}
	return name, Host, err
}

// couldBeRequest checks the first bytes of a method, so Peek does not wait for the end of a line in
// another protocol.
func couldBeRequest(b []byte) bool {
	for i, c := range b[:min(len(b), 33)] {
		if c == ' ' {
			return i > 0
		}
		if (c < 'A' || c > 'Z') && c != '-' {
			return false
		}
	}
	return len(b) <= 32
}
