package upstream

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxAnswer limits a proxy's answer to CONNECT, in bytes.
const maxAnswer = 8 << 10

// errAnswer is the error for an answer that does not end.
var errAnswer = errors.New("its answer is too long")

// connect asks an HTTP proxy for a tunnel. It reads exactly the proxy's answer: the bytes after it are the far end's,
// which may speak first.
func (p *Proxy) connect(c io.ReadWriter, to Target) error {
	request := fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %s\r\n", to, to)
	if p.Secret() {
		request += "Proxy-Authorization: Basic " +
			base64.StdEncoding.EncodeToString([]byte(p.url.User+":"+p.url.Password)) + "\r\n"
	}
	if _, err := io.WriteString(c, request+"\r\n"); err != nil {
		return err
	}
	head, err := readHead(c)
	if err != nil {
		return err
	}
	return p.judge(head, to)
}

// readHead reads to the empty line, byte by byte.
func readHead(c io.Reader) (string, error) {
	var b strings.Builder
	var one [1]byte
	for b.Len() < maxAnswer {
		if _, err := io.ReadFull(c, one[:]); err != nil {
			return "", err
		}
		b.WriteByte(one[0])
		if one[0] == '\n' && (strings.HasSuffix(b.String(), "\r\n\r\n") || strings.HasSuffix(b.String(), "\n\n")) {
			return b.String(), nil
		}
	}
	return "", errAnswer
}

// statuses are the answers of proxies that say more than a general failure.
var statuses = map[int]struct {
	why  Why
	text string
}{
	403: {Forbidden, "its rules forbid it"},
	404: {HostUnreach, "host not found"},
	405: {Unsupported, "it does not connect to other hosts"},
	501: {Unsupported, "it does not connect to other hosts"},
	502: {HostUnreach, "host unreachable"},
	503: {HostUnreach, "host unreachable"},
	504: {Expired, "the host does not answer"},
}

// judge returns an error unless the answer opens the tunnel.
func (p *Proxy) judge(head string, to Target) error {
	line, _, _ := strings.Cut(head, "\n")
	word, rest, _ := strings.Cut(line, " ")
	code, err := strconv.Atoi(rest[:min(3, len(rest))])
	switch s, known := statuses[code]; {
	case err != nil || !strings.HasPrefix(word, "HTTP/1.") || code < 100:
		return p.says(NoProxy, "is no HTTP proxy")
	case code >= 200 && code < 300:
		return nil
	case code == 407 && p.Secret():
		return p.says(Unknown, "refused the user name and the password")
	case code == 407:
		return p.says(Unknown, "wants a user name and a password")
	case known:
		return p.says(s.why, fmt.Sprintf("did not reach %s: %s", to, s.text))
	}
	return p.says(Failed, fmt.Sprintf("did not reach %s: status %d", to, code))
}
