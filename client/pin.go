package client

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// errPin refuses a daemon with another certificate.
var errPin = errors.New("the daemon's certificate does not match the given fingerprint")

// pinned returns a TLS configuration that trusts one certificate, with any issuer and any names. It
// refuses a pin on a URL without TLS, because it could not be checked.
func pinned(u *url.URL, fingerprint string) (*tls.Config, error) {
	want, err := hex.DecodeString(strings.ReplaceAll(strings.TrimPrefix(fingerprint, "sha256:"), ":", ""))
	if err != nil || len(want) != sha256.Size {
		return nil, errors.New("fingerprint of the daemon's certificate: want 64 hex digits, its SHA-256")
	}
	if u.Scheme != "https" {
		return nil, fmt.Errorf("daemon's URL %q: a fingerprint goes with https:// only", u.Redacted())
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// The chain is not verified, because the pin covers the certificate itself.
		// VerifyConnection also runs for resumed sessions.
		InsecureSkipVerify: true, // #nosec G402 -- VerifyConnection compares the certificate with the pin
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errPin
			}
			got := sha256.Sum256(s.PeerCertificates[0].Raw)
			if subtle.ConstantTimeCompare(got[:], want) != 1 {
				return errPin
			}
			return nil
		},
	}, nil
}
