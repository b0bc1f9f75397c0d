package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/forkd/forkd/api"
)

// tlsConfig returns the configuration for a daemon at https://…. It returns nil if Go's defaults
// apply.
func tlsConfig(u *url.URL, opt Options) (c *tls.Config, err error) {
	if opt.Fingerprint != "" {
		if c, err = pinned(u, opt.Fingerprint); err != nil {
			return nil, err
		}
	}
	if opt.ClientCert == "" && opt.ClientKey == "" {
		return c, nil
	}
	switch {
	case opt.ClientCert == "" || opt.ClientKey == "":
		return nil, errors.New("a client certificate needs its key, and a key its certificate")
	case u.Scheme != "https":
		return nil, fmt.Errorf("daemon's URL %q: a client's certificate goes with https:// only", u.Redacted())
	}
	own, err := tls.LoadX509KeyPair(opt.ClientCert, opt.ClientKey)
	if err != nil {
		return nil, fmt.Errorf("read the client's certificate %s and its key %s: %w", opt.ClientCert, opt.ClientKey, err)
	}
	if c == nil {
		c = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	// Send the certificate whatever authorities the daemon lists. The daemon reports any problem
	// with it.
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	return c, nil
}

// refusedTLS returns an error if one side refused the connection, and nil for any other failure.
// The daemon has not processed the request, even if parts of it were sent.
func refusedTLS(url string, err error) *Error {
	e := &Error{Code: api.CodeUnreachable, cause: err}
	var untrusted *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	var alert *net.OpError
	switch {
	case errors.Is(err, errPin), errors.As(err, &untrusted):
		e.Reason, e.Message = api.ReasonTLSUntrusted, fmt.Sprintf("the daemon at %s is not trusted: %v", url, err)
	case errors.As(err, &noTLS):
		e.Reason, e.Message = api.ReasonTLSScheme, fmt.Sprintf("the server at %s does not speak TLS", url)
	case errors.As(err, &alert) && alert.Op == "remote error" && strings.Contains(alert.Err.Error(), "certificate"):
		e.Reason, e.Message = api.ReasonTLSClientCertificate,
			fmt.Sprintf("the daemon at %s refuses this client for its certificate: %v", url, alert.Err)
	default:
		return nil
	}
	return e
}
