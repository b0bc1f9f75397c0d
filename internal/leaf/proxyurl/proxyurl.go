// Package proxyurl reads the URLs of proxies for TCP. It connects to none: internal/net/upstream does, and
// internal/net/netpolicy decides which ones may be reached. Its errors never quote the input, which may contain a
// password.
package proxyurl

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// Scheme is the protocol of a proxy.
type Scheme string

// The protocols: SOCKS5, and HTTP with the method CONNECT.
const (
	SOCKS5 Scheme = "socks5"
	HTTP   Scheme = "http"
)

// defaultPort is the port of a SOCKS5 proxy without a port in its URL. HTTP proxies have no common port.
const defaultPort = "1080"

// MaxLogin limits user name and password each, in bytes: RFC 1929 has one byte for the length.
const MaxLogin = 255

// URL is a proxy's URL.
type URL struct {
	Scheme Scheme
	Host   string // a name or an address, without brackets
	Port   uint16 // never 0
	// User and Password are both empty without authentication.
	User, Password string
}

var errForm = errors.New("want socks5://[USER:PASSWORD@]HOST[:PORT] or http://[USER:PASSWORD@]HOST:PORT")

// Parse reads socks5://[user:password@]host[:port] or http://[user:password@]host:port.
func Parse(text string) (URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return URL{}, errForm
	}
	out, port := URL{Scheme: Scheme(u.Scheme), Host: u.Hostname()}, u.Port()
	switch out.Scheme {
	case SOCKS5:
		port = cmp.Or(port, defaultPort)
	case HTTP:
	default:
		return URL{}, errForm
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return URL{}, errForm
	}
	out.Port = uint16(n)
	if u.User == nil {
		return out, nil
	}
	password, _ := u.User.Password()
	return out.With(u.User.Username(), password)
}

// With returns the URL with a user name and a password.
func (u URL) With(user, password string) (URL, error) {
	if !IsLogin(user) || !IsLogin(password) || strings.Contains(user, ":") {
		return URL{}, fmt.Errorf("a user name and a password have 1 to %d bytes each, without control characters, and "+
			"the user name has no colon: %w", MaxLogin, errForm)
	}
	u.User, u.Password = user, password
	return u, nil
}

// IsLogin reports whether a text can be a password. A user name must also have no colon.
func IsLogin(s string) bool {
	return s != "" && len(s) <= MaxLogin && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// Address returns host and port, without secrets.
func (u URL) Address() string { return net.JoinHostPort(u.Host, strconv.Itoa(int(u.Port))) }
