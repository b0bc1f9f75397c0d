package upstream

import (
	"io"
)

// Numbers from RFC 1928 and RFC 1929.
const (
	version    = 5
	subVersion = 1 // of the exchange of name and password
	connect    = 1
	noAuth     = 0x00
	byPassword = 0x02
	typeIPv4   = 1
	typeName   = 3
	typeIPv6   = 4
)

// ask makes the proxy connect to an address. It reads exactly the proxy's answers.
func (p *Proxy) ask(c io.ReadWriter, to Target) error {
	if err := p.greet(c); err != nil {
		return err
	}
	request, port := append([]byte{version, connect, 0}, host(to)...), to.Addr.Port()
	if _, err := c.Write(append(request, byte(port>>8), byte(port))); err != nil {
		return err
	}
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	if head[0] != version {
		return p.says(NoProxy, "is no SOCKS5 proxy")
	}
	if head[1] != 0 {
		return p.refused(head[1], to)
	}
	return p.skipBound(c, head[3])
}

// host returns the type and the bytes of a target's host.
func host(to Target) []byte {
	addr := to.Addr.Addr().Unmap()
	switch {
	case to.Name != "" && len(to.Name) <= 255:
		return append([]byte{typeName, byte(len(to.Name))}, to.Name...)
	case addr.Is6():
		return append([]byte{typeIPv6}, addr.AsSlice()...)
	}
	return append([]byte{typeIPv4}, addr.AsSlice()...)
}

// greet negotiates the authentication.
func (p *Proxy) greet(c io.ReadWriter) error {
	methods := []byte{version, 1, noAuth}
	if p.Secret() {
		methods = []byte{version, 2, noAuth, byPassword}
	}
	if _, err := c.Write(methods); err != nil {
		return err
	}
	var chosen [2]byte
	if _, err := io.ReadFull(c, chosen[:]); err != nil {
		return err
	}
	switch {
	case chosen[0] != version:
		return p.says(NoProxy, "is no SOCKS5 proxy")
	case chosen[1] == noAuth:
		return nil
	case chosen[1] == byPassword && p.Secret():
		return p.login(c)
	case p.Secret():
		return p.says(Unknown, "takes neither a user name with a password nor anybody")
	}
	return p.says(Unknown, "wants a user name and a password")
}

func (p *Proxy) login(c io.ReadWriter) error {
	m := append([]byte{subVersion, byte(len(p.url.User))}, p.url.User...)
	m = append(append(m, byte(len(p.url.Password))), p.url.Password...)
	if _, err := c.Write(m); err != nil {
		return err
	}
	var answer [2]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return err
	}
	if answer[1] != 0 {
		return p.says(Unknown, "refused the user name and the password")
	}
	return nil
}

// skipBound reads and ignores the address that the proxy has dialed from.
func (p *Proxy) skipBound(c io.Reader, kind byte) error {
	var b [256 + 2]byte
	n := 0
	switch kind {
	case typeIPv4:
		n = 4
	case typeIPv6:
		n = 16
	case typeName:
		if _, err := io.ReadFull(c, b[:1]); err != nil {
			return err
		}
		n = int(b[0])
	default:
		return p.says(NoProxy, "is no SOCKS5 proxy")
	}
	_, err := io.ReadFull(c, b[:n+2]) // and the port
	return err
}
