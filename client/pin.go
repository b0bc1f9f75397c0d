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

// errPin is what a daemon with another certificate is refused with.
var errPin = errors.New("the daemon's certificate is not the one with the fingerprint that was given")

// pinned trusts one certificate, whoever signed it and whatever names are in it. A pin on
// a connection without TLS would promise what nobody keeps.
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
		// The chain is not looked at, since the certificate itself is. VerifyConnection runs for
		// resumed sessions, too.
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
