package signature

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

// The types of PEM blocks. Old versions of cosign wrote cosignBlock.
const (
	privateBlock = "ENCRYPTED SIGSTORE PRIVATE KEY"
	cosignBlock  = "ENCRYPTED COSIGN PRIVATE KEY"
	publicBlock  = "PUBLIC KEY"
)

// MaxKeyBytes limits a file with a key.
const MaxKeyBytes = 64 << 10

// ErrKey is wrapped by errors about the text or the password of a key.
var ErrKey = errors.New("bad key")

// PrivateKey signs artifacts.
type PrivateKey struct{ ecdsa *ecdsa.PrivateKey }

// PublicKey verifies signatures.
type PublicKey struct {
	// Fingerprint is the SHA-256 of the key, in hexadecimal digits.
	Fingerprint string
	ecdsa       *ecdsa.PublicKey
}

// Generate makes a key pair as two PEM texts. The private key is encrypted with the password, which may be empty.
func Generate(password []byte) (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	locked, err := encrypted.Encrypt(der, password)
	if err != nil {
		return nil, nil, err
	}
	public, err = (&PrivateKey{key}).Public()
	return pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: locked}), public, err
}

// ParsePrivate decodes and decrypts a private key.
func ParsePrivate(text, password []byte) (*PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != privateBlock && block.Type != cosignBlock {
		return nil, fmt.Errorf("%w: want a PEM block %q, as in the .key file of a key pair",
			ErrKey, privateBlock)
	}
	der, err := encrypted.Decrypt(block.Bytes, password)
	if err != nil {
		return nil, fmt.Errorf("%w: decrypt it with the password: %w", ErrKey, err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	key, is := parsed.(*ecdsa.PrivateKey)
	if !is || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%w: want ECDSA P-256", ErrKey)
	}
	return &PrivateKey{key}, nil
}

// Public returns the public key as a PEM text.
func (k *PrivateKey) Public() ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(&k.ecdsa.PublicKey)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: publicBlock, Bytes: der}), nil
}

// ParsePublic decodes a public key.
func ParsePublic(text []byte) (*PublicKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != publicBlock {
		return nil, fmt.Errorf("%w: want a PEM block %q, the .pub file of a key pair", ErrKey, publicBlock)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	key, is := parsed.(*ecdsa.PublicKey)
	if !is || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%w: want ECDSA P-256", ErrKey)
	}
	sum := sha256.Sum256(block.Bytes)
	return &PublicKey{Fingerprint: hex.EncodeToString(sum[:]), ecdsa: key}, nil
}
