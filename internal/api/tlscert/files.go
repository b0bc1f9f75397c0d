package tlscert

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// lookEvery is the shortest time between two checks of the files.
const lookEvery = time.Second

// Files are a certificate and its key, in two PEM files. They are checked when a client connects,
// so a renewed certificate needs no notification.
type Files struct {
	cert, key string
	log       *slog.Logger
	now       func() time.Time

	mu     sync.Mutex // guards the fields below
	have   *tls.Certificate
	state  [2]fileState
	looked time.Time
}

// fileState changes when a file is written or replaced.
type fileState struct {
	modified time.Time
	size     int64
}

// Open reads the files.
func Open(cert, key string, log *slog.Logger) (*Files, error) {
	f := &Files{cert: cert, key: key, log: log, now: time.Now}
	f.state = f.look()
	have, err := load(cert, key)
	if err != nil {
		return nil, err
	}
	f.have, f.looked = have, f.now()
	return f, nil
}

func load(cert, key string) (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read certificate %s and key %s: %w", cert, key, err)
	}
	return &c, nil
}

func (f *Files) look() (s [2]fileState) {
	for i, path := range []string{f.cert, f.key} {
		if st, err := os.Stat(path); err == nil {
			s[i] = fileState{st.ModTime(), st.Size()}
		}
	}
	return s
}

// Certificate is for tls.Config.GetCertificate. If changed files cannot be read, or do not match
// yet, it returns the previous certificate.
func (f *Files) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if now.Sub(f.looked) < lookEvery {
		return f.have, nil
	}
	f.looked = now
	state := f.look()
	if state == f.state {
		return f.have, nil
	}
	next, err := load(f.cert, f.key)
	if err != nil {
		f.log.Warn("the certificate's files have changed and cannot be used; the one before stays", "err", err)
		return f.have, nil
	}
	f.have, f.state = next, state
	f.log.Info("certificate read anew", "file", f.cert, "fingerprint", Fingerprint(next.Certificate[0]))
	return f.have, nil
}

// Fingerprint returns the fingerprint of the current certificate.
func (f *Files) Fingerprint() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Fingerprint(f.have.Certificate[0])
}

// Config returns the configuration of a server. clientCA is a file of certificates, one of which
// must have signed a client's certificate. If clientCA is empty, clients need no certificate.
func (f *Files) Config(clientCA string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: f.Certificate, NextProtos: []string{"h2", "http/1.1"}}
	if clientCA == "" {
		return c, nil
	}
	b, err := os.ReadFile(clientCA)
	if err != nil {
		return nil, fmt.Errorf("read certificates of clients: %w", err)
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("read certificates of clients: %s: %w", clientCA, errors.New("there is none in it"))
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	return c, nil
}
