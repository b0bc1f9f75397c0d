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

// TokenFile returns the path of the token a daemon makes for its TCP addresses if none is
// configured. addressFile beside it lists those addresses, one per line. The CLI sends the token
// only to these addresses, because another address may belong to another process.
func TokenFile(run string) string { return filepath.Join(run, "token") }

func addressFile(run string) string { return filepath.Join(run, "token.for") }

// NewToken returns a new token: 32 random bytes.
func NewToken() (string, error) {
	b := make([]byte, 32)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	return hex.EncodeToString(b), nil
}

// WriteToken writes a daemon's token and its addresses to the run directory, and replaces an
// earlier daemon's files. Only the daemon holding the directory may call it. The returned function
// removes the files.
func WriteToken(run, token string, addresses []string) (remove func(), err error) {
	remove = func() {
		_ = os.Remove(addressFile(run))
		_ = os.Remove(TokenFile(run))
	}
	remove() // the token of a killed daemon is no longer valid
	if err := writePrivate(TokenFile(run), token+"\n"); err != nil {
		return nil, fmt.Errorf("write token: %w", err)
	}
	if err := writePrivate(addressFile(run), strings.Join(addresses, "\n")+"\n"); err != nil {
		remove()
		return nil, fmt.Errorf("write the addresses of the token: %w", err)
	}
	return remove, nil
}

// writePrivate creates a file. It fails if the name exists, as a file or a link.
func writePrivate(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// tokenFor returns the token of this user's own daemon if a URL is one of its addresses, and ""
// otherwise.
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
		return "" // not made by a daemon
	}
	return token
}

// leadsTo reports whether a client that connects to host:port reaches a listener of this host. It
// resolves no names other than localhost.
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

// readPrivate reads a small file only this user can have written.
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

// Listening returns the TCP address of the daemon that serves a Unix socket, with the token the
// daemon made for it. Both are empty if the daemon has no TCP address, or did not make its token.
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
