package secrets

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/chacha20poly1305"
)

// Format is the version of the files. The package reads no other version.
const Format = 1

// maxFile limits a file when it is read: a value in base64, and its header.
const maxFile = 128 << 10

var (
	idPattern     = regexp.MustCompile(`^s[0-9a-f]{24}$`)
	tenantPattern = regexp.MustCompile(`^([a-z0-9_]{1,24})?$`)
)

// header is the authenticated part of a file. Its JSON form is the associated data of the value's encryption.
type header struct {
	Format   int               `json:"format"`
	Key      string            `json:"key"` // identifies the encryption key
	ID       string            `json:"id"`
	Tenant   string            `json:"tenant"`
	Name     string            `json:"name"`
	Version  int               `json:"version"`
	Created  int64             `json:"created"` // seconds since 1970, as Updated
	Updated  int64             `json:"updated"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// file is the whole file of a secret; see docs/inside/formats/secrets.md.
type file struct {
	header
	// Sealed is a nonce of XChaCha20-Poly1305 and the encrypted value.
	Sealed []byte `json:"sealed"`
}

func (h header) secret() Secret {
	return Secret{ID: h.ID, Tenant: h.Tenant, Name: h.Name, Version: h.Version, Metadata: maps.Clone(h.Metadata),
		Created: time.Unix(h.Created, 0), Updated: time.Unix(h.Updated, 0)}
}

func headerOf(s Secret, k *Key) header {
	return header{Format: Format, Key: k.id(), ID: s.ID, Tenant: s.Tenant, Name: s.Name, Version: s.Version,
		Created: s.Created.Unix(), Updated: s.Updated.Unix(), Metadata: s.Metadata}
}

// seal returns the content of a secret's file. The nonce is random for each call.
func seal(k *Key, s Secret, value []byte) ([]byte, error) {
	nonce := make([]byte, chacha20poly1305.NonceSizeX)
	_, _ = rand.Read(nonce) // never fails
	return sealWith(k, s, value, nonce)
}

func sealWith(k *Key, s Secret, value, nonce []byte) ([]byte, error) {
	h := headerOf(s, k)
	with, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	aead, err := chacha20poly1305.NewX(k.bytes[:])
	if err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(file{h, aead.Seal(nonce, nonce, value, with)}, "", "  ")
	return append(b, '\n'), err
}

// ErrOtherKey is the error of a file encrypted with another key than the store's.
var ErrOtherKey = errors.New("it is encrypted with another key")

// decode checks the form of a file, without its value.
func decode(b []byte) (file, error) {
	var f file
	if len(b) > maxFile {
		return f, fmt.Errorf("it has %d bytes, want at most %d", len(b), maxFile)
	}
	if err := json.Unmarshal(b, &f); err != nil { // without the text of err, which may quote the file
		return f, errors.New("it is no whole JSON object of a secret")
	}
	h := f.header
	switch {
	case h.Format != Format:
		return f, fmt.Errorf("its format is %d, want %d", h.Format, Format)
	case !idPattern.MatchString(h.ID), !tenantPattern.MatchString(h.Tenant), h.Version < 1, h.Version > 1<<40:
		return f, errors.New("its id, tenant or version is invalid")
	case h.Created < 0 || h.Created > 1<<40 || h.Updated < 0 || h.Updated > 1<<40:
		return f, errors.New("a time is out of range")
	}
	for name, v := range h.Metadata {
		if !utf8.ValidString(name) || !utf8.ValidString(v) {
			return f, errors.New("its metadata is no text")
		}
	}
	if err := errors.Join(CheckName(h.Name), checkMetadata(h.Metadata)); err != nil {
		return f, errors.New("its name or metadata is invalid")
	}
	return f, nil
}

// open returns the value of a decoded file.
func (f file) open(k *Key) ([]byte, error) {
	if f.Key != k.id() {
		return nil, ErrOtherKey
	}
	with, err := json.Marshal(f.header)
	if err != nil {
		return nil, err
	}
	aead, err := chacha20poly1305.NewX(k.bytes[:])
	if err != nil {
		return nil, err
	}
	if len(f.Sealed) < aead.NonceSize()+aead.Overhead() || len(f.Sealed) > MaxValue+aead.NonceSize()+aead.Overhead() {
		return nil, errors.New("its value is cut or too long")
	}
	nonce, sealed := f.Sealed[:aead.NonceSize()], f.Sealed[aead.NonceSize():]
	value, err := aead.Open(nil, nonce, sealed, with)
	if err != nil {
		return nil, errors.New("it was changed since it was written")
	}
	return value, nil
}
