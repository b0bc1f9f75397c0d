package netproxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour // a snapshot may be old when it is forked
	leafLife      = 7 * 24 * time.Hour
	leavesMax     = 256 // cached certificates of one authority
)

// SeedBytes is the size of a seed.
const SeedBytes = 32

// authority is a CA. Its key is only in this process's memory, and can be made again from the seed.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	mu     sync.Mutex
	leaves map[string]*tls.Certificate // by lowercase name
}

// newAuthority returns the authority of a name. The same seed gives the same key and subject, so programs that trust
// an earlier certificate of the authority trust its hosts.
func newAuthority(seed []byte, name string) (*authority, error) {
	key, err := keyOf(seed, name)
	if err != nil {
		return nil, fmt.Errorf("make a CA's key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "forkd header injection, " + name}, NotBefore: now.Add(-24 * time.Hour),
		NotAfter: now.Add(authorityLife), IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	cert, err := sign(template, nil, key, key)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, leaves: map[string]*tls.Certificate{}}, nil
}

// keyOf derives the key of an authority. The number is nearly always below the order of the curve.
func keyOf(seed []byte, name string) (key *ecdsa.PrivateKey, err error) {
	for i := range 100 {
		b, err := hkdf.Key(sha256.New, seed, nil, fmt.Sprintf("forkd CA %d, %s", i, name), 32)
		if err != nil {
			return nil, err
		}
		if key, err = ecdsa.ParseRawPrivateKey(elliptic.P256(), b); err == nil {
			return key, nil
		}
	}
	return nil, errors.New("the seed gives no key")
}

// sign creates a certificate. Without a parent it is self-signed.
func sign(template, parent *x509.Certificate, of, by *ecdsa.PrivateKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	template.SerialNumber = serial
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, of.Public(), by)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

func (a *authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// leaf returns the certificate for a host.
func (a *authority) leaf(host string) (*tls.Certificate, error) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if l := a.leaves[host]; l != nil && l.Leaf.NotAfter.After(now.Add(leafLife/2)) {
		return l, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a certificate's key: %w", err)
	}
	cert, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: now.Add(-24 * time.Hour),
		NotAfter: now.Add(leafLife), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, key, a.key)
	if err != nil {
		return nil, err
	}
	if len(a.leaves) >= leavesMax {
		clear(a.leaves)
	}
	l := &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
	a.leaves[host] = l
	return l, nil
}
