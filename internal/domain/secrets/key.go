package secrets

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/forkd/forkd/internal/sys/durable"
)

// keyPrefix begins the only line of a key file. Base64 of the key follows.
const keyPrefix = "forkd-secrets-key-1:"

const maxKeyFile = 4 << 10

// Key encrypts the files of a store. Its formatted text does not contain the key.
type Key struct {
	bytes [chacha20poly1305.KeySize]byte
}

// String returns a text without the key.
func (Key) String() string { return "(a key)" }

// GoString returns a text without the key.
func (Key) GoString() string { return "(a key)" }

// id identifies the key in files, to tell a wrong key from a damaged file.
func (k *Key) id() string {
	sum := sha256.Sum256(append([]byte("forkd secrets key id\x00"), k.bytes[:]...))
	return hex.EncodeToString(sum[:8])
}

// NewKeyFile writes a new random key to a file that does not exist yet, readable for its owner only.
func NewKeyFile(path string) error {
	var k Key
	_, _ = rand.Read(k.bytes[:]) // never fails
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: a new key there would make all secrets of the old one unreadable", path)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(keyPrefix + base64.StdEncoding.EncodeToString(k.bytes[:]) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = durable.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		os.Remove(path)
	}
	return err
}

// ReadKeyFile reads a key. It refuses a file that other users can read, unless it is a credential of systemd, whose
// directory only the service can enter.
func ReadKeyFile(path string, credential bool) (*Key, error) {
	f, err := durable.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch perm := st.Mode().Perm(); {
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	case perm&0o077 != 0 && !credential:
		return nil, fmt.Errorf("%s: other users can read or write it (mode %04o): run chmod 600 %s", path, perm, path)
	}
	b, err := durable.ReadFile(path, maxKeyFile)
	if err != nil {
		return nil, err
	}
	k, err := parseKey(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

func parseKey(text string) (*Key, error) {
	coded, ok := strings.CutPrefix(strings.TrimSpace(text), keyPrefix)
	b, err := base64.StdEncoding.DecodeString(coded)
	if !ok || err != nil || len(b) != chacha20poly1305.KeySize { // without the text, which may be a key
		return nil, errors.New("it holds no key for secrets")
	}
	return &Key{[chacha20poly1305.KeySize]byte(b)}, nil
}
