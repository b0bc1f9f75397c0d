package tlscert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/forkd/forkd/internal/sys/durable"
)

// Fingerprint returns the SHA-256 of a certificate in DER, in hex.
func Fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// madeFor is the validity of a self-signed certificate. Clients pin it, so its age does not make it
// weaker.
const madeFor = 10 * 365 * 24 * time.Hour

// Made returns the files of a self-signed certificate in dir, and creates them if they are missing.
// Deleting both files gives a new certificate with another fingerprint.
func Made(dir string) (cert, key string, err error) {
	cert, key = filepath.Join(dir, "self-signed.crt"), filepath.Join(dir, "self-signed.key")
	if _, err := os.Lstat(cert); !errors.Is(err, fs.ErrNotExist) {
		return cert, key, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", err
	}
	if err := makePair(cert, key); err != nil {
		return "", "", fmt.Errorf("make certificate: %w", err)
	}
	return cert, key, nil
}

func makePair(cert, key string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "forkd"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(madeFor),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		DNSNames:              []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	// Write the certificate last: its presence marks the pair as complete.
	if err := durable.Rewrite(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})); err != nil {
		return err
	}
	return durable.Rewrite(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
