package netproxy

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
)

// maxRequestHead limits the head of an HTTP/1 request.
const maxRequestHead = 32 << 10

// requestName returns the Host of the HTTP/1 request at the start of b. It returns an error if
// servers might read the request in different ways: RFC 9112 §3.2.
func requestName(b []byte) (string, error) {
	line, rest, err := takeLine(b)
	if err != nil {
		return "", err
	}
	target, err := requestTarget(line)
	if err != nil {
		return "", err
	}
	host, found := "", false
	for {
		if line, rest, err = takeLine(rest); err != nil {
			if len(b) > maxRequestHead {
				return "", fmt.Errorf("%w: a request's head over %d bytes", ErrNoName, maxRequestHead)
			}
			return "", err
		}
		if len(line) == 0 {
			break
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || len(name) == 0 || bytes.ContainsAny(name, " \t") {
			return "", fmt.Errorf("%w: a broken header", ErrNoName) // also folded lines, and blanks before the colon
		}
		if !bytes.EqualFold(name, []byte("host")) {
			continue
		}
		if found {
			return "", fmt.Errorf("%w: two Host headers", ErrNoName)
		}
		host, found = string(bytes.Trim(value, " \t")), true
	}
	if !found {
		return "", fmt.Errorf("%w: a request without Host", ErrNoName)
	}
	if target != "" && !strings.EqualFold(target, host) {
		return "", fmt.Errorf("%w: the request is for %.80q, its Host is %.80q", ErrNoName, target, host)
	}
	return hostName(host)
}

// takeLine returns the next line. It refuses bare line ends, because servers differ in accepting
// them.
func takeLine(b []byte) (line, rest []byte, err error) {
	at := bytes.IndexByte(b, '\n')
	if at < 0 {
		if bytes.IndexByte(b, 0) >= 0 {
			return nil, nil, fmt.Errorf("%w: no HTTP request", ErrNoName)
		}
		return nil, nil, errMore
	}
	if at == 0 || b[at-1] != '\r' {
		return nil, nil, fmt.Errorf("%w: a line that ends without CR", ErrNoName)
	}
	line = b[:at-1]
	if bytes.ContainsAny(line, "\r\x00") {
		return nil, nil, fmt.Errorf("%w: a line with control characters", ErrNoName)
	}
	return line, b[at+1:], nil
}

// requestTarget returns the authority of the target, if it has one. HTTP/2's preface and CONNECT
// are refused, because they contain no reliable host.
func requestTarget(line []byte) (authority string, err error) {
	method, rest, ok := strings.Cut(string(line), " ")
	target, version, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || !isToken(method) || version != "HTTP/1.1" && version != "HTTP/1.0" {
		return "", fmt.Errorf("%w: no HTTP/1 request", ErrNoName)
	}
	if method == "CONNECT" {
		return "", fmt.Errorf("%w: CONNECT", ErrNoName)
	}
	if strings.HasPrefix(target, "/") || target == "*" {
		return "", nil
	}
	after, ok := strings.CutPrefix(strings.ToLower(target), "http://")
	if !ok {
		return "", fmt.Errorf("%w: target %.80q", ErrNoName, target)
	}
	if at := strings.IndexAny(after, "/?#"); at >= 0 {
		after = after[:at]
	}
	return after, nil
}

func isToken(s string) bool {
	if s == "" || len(s) > 32 {
		return false
	}
	for _, c := range []byte(s) {
		if c < 'A' || c > 'Z' {
			if c != '-' {
				return false
			}
		}
	}
	return true
}

// hostName returns the name in a Host header, without its port. It refuses addresses.
func hostName(host string) (string, error) {
	name := host
	if at := strings.LastIndexByte(host, ':'); at >= 0 && !strings.HasSuffix(host, "]") {
		name = host[:at]
		for _, c := range []byte(host[at+1:]) {
			if c < '0' || c > '9' {
				return "", fmt.Errorf("%w: Host %.80q", ErrNoName, host)
			}
		}
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return "", fmt.Errorf("%w: Host is the address %s", ErrNoName, name)
	}
	return checkName(name)
}
