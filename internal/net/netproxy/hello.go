package netproxy

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxHead limits the bytes read from a flow to find its name.
const MaxHead = 64 << 10

var (
	// ErrNoName is the error if the first bytes contain no unambiguous host name.
	ErrNoName = errors.New("no host's name in the first bytes")
	// errMore is the error if the bytes so far are valid but incomplete.
	errMore = errors.New("more bytes are needed")
)

// Parts of TLS, RFC 8446.
const (
	recordHandshake = 22
	recordHeader    = 5
	recordMax       = 1<<14 + 256 // §5.2, generous
	clientHello     = 1
	handshakeHeader = 4
	extServerName   = 0
	nameIsHost      = 0 // RFC 6066 §3
)

// helloName returns the server name of the ClientHello at the start of b. The message may span
// several records.
func helloName(b []byte) (string, error) {
	hello, err := helloOf(b)
	if err != nil {
		return "", err
	}
	extensions, err := extensionsOf(hello)
	if err != nil {
		return "", err
	}
	name, found := "", false
	for len(extensions) > 0 {
		kind, body, rest, ok := takeExtension(extensions)
		if !ok {
			return "", fmt.Errorf("%w: broken extension", ErrNoName)
		}
		extensions = rest
		if kind != extServerName {
			continue
		}
		if found {
			return "", fmt.Errorf("%w: two server names", ErrNoName)
		}
		if name, err = serverName(body); err != nil {
			return "", err
		}
		found = true
	}
	if !found {
		return "", fmt.Errorf("%w: a TLS hello without a server name", ErrNoName)
	}
	return name, nil
}

// helloOf returns the body of the ClientHello, joined from its records.
func helloOf(b []byte) (hello []byte, err error) {
	for {
		if len(b) < recordHeader {
			return nil, errMore
		}
		size := int(binary.BigEndian.Uint16(b[3:]))
		if b[0] != recordHandshake || b[1] != 3 || size == 0 || size > recordMax {
			return nil, fmt.Errorf("%w: no TLS handshake", ErrNoName)
		}
		part := b[recordHeader:min(len(b), recordHeader+size)]
		hello = append(hello, part...)
		if len(hello) >= handshakeHeader {
			if hello[0] != clientHello {
				return nil, fmt.Errorf("%w: no TLS hello", ErrNoName)
			}
			need := int(hello[1])<<16 | int(hello[2])<<8 | int(hello[3])
			if need > MaxHead {
				return nil, fmt.Errorf("%w: a TLS hello of %d bytes", ErrNoName, need)
			}
			if len(hello) >= handshakeHeader+need {
				return hello[handshakeHeader : handshakeHeader+need], nil
			}
		}
		if len(part) < size {
			return nil, errMore
		}
		b = b[recordHeader+size:]
	}
}

// extensionsOf returns the extensions of a ClientHello, RFC 8446 §4.1.2.
func extensionsOf(hello []byte) ([]byte, error) {
	const fixed = 2 + 32 // version and random
	broken := fmt.Errorf("%w: broken TLS hello", ErrNoName)
	if len(hello) < fixed {
		return nil, broken
	}
	b, ok := skip(hello[fixed:], 1) // session ID
	if ok {
		b, ok = skip(b, 2) // cipher suites
	}
	if ok {
		b, ok = skip(b, 1) // compression methods
	}
	if !ok {
		return nil, broken
	}
	if len(b) == 0 {
		return nil, nil // an old hello without extensions
	}
	if len(b) < 2 || int(binary.BigEndian.Uint16(b)) != len(b)-2 {
		return nil, broken
	}
	return b[2:], nil
}

// skip skips a vector. Its length is in the first width bytes.
func skip(b []byte, width int) ([]byte, bool) {
	if len(b) < width {
		return nil, false
	}
	n := int(b[0])
	if width == 2 {
		n = n<<8 | int(b[1])
	}
	if len(b) < width+n {
		return nil, false
	}
	return b[width+n:], true
}

func takeExtension(b []byte) (kind uint16, body, rest []byte, ok bool) {
	if len(b) < 4 {
		return 0, nil, nil, false
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if len(b) < 4+n {
		return 0, nil, nil, false
	}
	return binary.BigEndian.Uint16(b), b[4 : 4+n], b[4+n:], true
}

// serverName returns the only host name in the extension, RFC 6066 §3.
func serverName(b []byte) (string, error) {
	if len(b) < 5 || int(binary.BigEndian.Uint16(b)) != len(b)-2 || b[2] != nameIsHost ||
		int(binary.BigEndian.Uint16(b[3:])) != len(b)-5 || len(b) == 5 {
		return "", fmt.Errorf("%w: broken server name", ErrNoName)
	}
	return checkName(string(b[5:]))
}

// checkName refuses characters and lengths that host names do not have. The policy checks whether
// the name is canonical.
func checkName(name string) (string, error) {
	if len(name) == 0 || len(name) > 254 {
		return "", fmt.Errorf("%w: a name of %d bytes", ErrNoName, len(name))
	}
	for _, c := range []byte(name) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_'
		if !ok {
			return "", fmt.Errorf("%w: a name with the byte %#x", ErrNoName, c)
		}
	}
	return name, nil
}
