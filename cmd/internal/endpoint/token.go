//go:build linux

package endpoint

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// TokenFile is the token that a daemon makes for its TCP addresses if it is given
// none; addressFile beside it has those addresses, one a line. Only with both does
// the CLI show the token: whoever listens elsewhere is somebody else.
func TokenFile(run string) string { return filepath.Join(run, "token") }

func addressFile(run string) string { return filepath.Join(run, "token.for") }

// NewToken makes a token: 32 random bytes.
func NewToken() (string, error) {
	b := make([]byte, 32)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	return hex.EncodeToString(b), nil
}

// WriteToken leaves a daemon's token and the addresses that it is for in its run
// directory, in place of an earlier daemon's. Only the daemon that holds the
// directory may call it. The function that it returns removes them.
func WriteToken(run, token string, addresses []string) (remove func(), err error) {
	remove = func() {
		_ = os.Remove(addressFile(run))
		_ = os.Remove(TokenFile(run))
	}
	remove() // a token of a daemon that was killed is nobody's
	if err := writePrivate(TokenFile(run), token+"\n"); err != nil {
		return nil, fmt.Errorf("write token: %w", err)
	}
	if err := writePrivate(addressFile(run), strings.Join(addresses, "\n")+"\n"); err != nil {
		remove()
		return nil, fmt.Errorf("write the addresses of the token: %w", err)
	}
	return remove, nil
}

// writePrivate makes a file that was not there, nor a link of its name.
func writePrivate(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// tokenFor is the token of this user's own daemon if a URL is one of its addresses,
// else empty.
func tokenFor(run, daemon string) string {
	u, err := url.Parse(daemon)
	if err != nil || u.Scheme != "tcp" && u.Scheme != "http" {
		return ""
	}
	addresses, err := readPrivate(addressFile(run))
	if err != nil || !slices.ContainsFunc(strings.Fields(addresses), func(a string) bool { return leadsTo(u.Host, a) }) {
		return ""
	}
	token, err := readPrivate(TokenFile(run))
	token = strings.TrimSpace(token)
	if err != nil || !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(token) {
		return "" // not one that a daemon made
	}
	return token
}

// leadsTo reports whether a client that connects to host:port reaches a listener of
// this host. Names other than localhost are not looked up.
func leadsTo(hostport, listener string) bool {
	host, port, err := net.SplitHostPort(hostport)
	at, atPort, err2 := net.SplitHostPort(strings.TrimPrefix(listener, "tcp://"))
	if err != nil || err2 != nil || port != atPort {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		host = "127.0.0.1"
	}
	to, own := net.ParseIP(host), net.ParseIP(at)
	return to != nil && to.IsLoopback() && own != nil && (to.Equal(own) || own.IsUnspecified())
}

// readPrivate reads a small file that only this user can have written.
func readPrivate(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return "", fmt.Errorf("%s: %w", path, fs.ErrPermission)
	}
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	return string(b), err
}

// Listening is the TCP address of the daemon that serves a Unix socket, with the token that it
// made for it; both empty if it has none, or its token is not one that it made.
func Listening(daemon string) (address, token string) {
	u, err := url.Parse(daemon)
	if err != nil || u.Scheme != "unix" {
		return "", ""
	}
	run := filepath.Dir(u.Path)
	addresses, err := readPrivate(addressFile(run))
	if err != nil {
		return "", ""
	}
	for _, a := range strings.Fields(addresses) {
		host, port, err := net.SplitHostPort(strings.TrimPrefix(a, "tcp://"))
		if err != nil {
			continue
		}
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			host = "127.0.0.1"
		}
		address = "http://" + net.JoinHostPort(host, port)
		if token = tokenFor(run, address); token != "" {
			return address, token
		}
	}
	return "", ""
}
