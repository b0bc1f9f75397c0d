package trust

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// Files accesses a guest's files through its agent.
type Files interface {
	Download(ctx context.Context, path, user string, w io.Writer) (int64, error)
	Upload(ctx context.Context, path, user string, mode fs.FileMode, r io.Reader) error
}

// Locations of certificates. update-ca-certificates, which the installation of a package may run,
// rebuilds the bundle from the folder of the second.
const (
	Bundle = "/etc/ssl/certs/ca-certificates.crt"
	Own    = "/usr/local/share/ca-certificates/forkd.crt"
	redhat = "/etc/pki/tls/certs/ca-bundle.crt"
)

// root is the owner of the files.
const root = "root"

// maxBundle limits the bytes read from a guest: a system's bundle has about 200 KiB.
const maxBundle = 4 << 20

// Marks around our part of a bundle. PEM readers skip such lines.
const (
	begin = "# forkd: for hosts that headers are set on\n"
	end   = "# forkd: end\n"
)

// Env returns the variables that point programs with their own bundles to the system's.
func Env() map[string]string {
	return map[string]string{
		"SSL_CERT_FILE": Bundle, "REQUESTS_CA_BUNDLE": Bundle, "CURL_CA_BUNDLE": Bundle, "NODE_EXTRA_CA_CERTS": Own,
	}
}

// Install makes a guest trust a certificate, in PEM, instead of the previous one.
func Install(ctx context.Context, guest Files, ca string) error {
	if err := guest.Upload(ctx, Own, root, 0o644, strings.NewReader(ca)); err != nil {
		return err
	}
	system, err := read(ctx, guest, Bundle)
	other, err2 := read(ctx, guest, redhat)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	if other != nil {
		if err := put(ctx, guest, redhat, other, ca); err != nil {
			return err
		}
	}
	if system == nil { // Env points there
		system = other
	}
	return put(ctx, guest, Bundle, system, ca)
}

func put(ctx context.Context, guest Files, path string, old []byte, ca string) error {
	now := with(old, ca)
	if bytes.Equal(now, old) {
		return nil
	}
	return guest.Upload(ctx, path, root, 0o644, bytes.NewReader(now))
}

// with returns a bundle with the certificate, and without our previous one.
func with(bundle []byte, ca string) []byte {
	before, rest, found := bytes.Cut(bundle, []byte(begin))
	if found {
		if _, after, whole := bytes.Cut(rest, []byte(end)); whole {
			before = append(bytes.Clone(before), after...)
		}
	}
	out := bytes.Clone(before)
	if n := len(out); n > 0 && out[n-1] != '\n' {
		out = append(out, '\n')
	}
	return append(out, begin+strings.TrimRight(ca, "\n")+"\n"+end...)
}

// read returns a guest's file, or nil if it does not exist.
func read(ctx context.Context, guest Files, path string) ([]byte, error) {
	b := bounded{left: maxBundle}
	_, err := guest.Download(ctx, path, root, &b)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return append([]byte{}, b.all...), nil
}

// bounded has Write as its only way in.
type bounded struct {
	all  []byte
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(p) > b.left {
		return 0, fmt.Errorf("a bundle of more than %d MiB", maxBundle>>20)
	}
	b.left -= len(p)
	b.all = append(b.all, p...)
	return len(p), nil
}
