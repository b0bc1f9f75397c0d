// Package seal holds the keys that seal an audit log: each seal has a key of its own, and the key before it is
// erased. A process that takes over the daemon thus cannot forge the seals of the past. The first key, stored on
// another machine, gives all later ones, so it verifies every seal. Start reading at Key. The package does not
// know the log: package audit writes the seals and verifies them.
package seal

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Key is the key of one seal.
type Key [sha256.Size]byte

// prefix begins the text of a key, so that scanners for secrets find it.
const prefix = "forkd_seal_"

// New returns a random first key.
func New() Key {
	var k Key
	_, _ = rand.Read(k[:]) // it never returns an error
	return k
}

// Text returns the key as the operator stores it. It is a secret.
func (k Key) Text() string { return prefix + hex.EncodeToString(k[:]) }

// String hides the key from logs.
func (k Key) String() string { return prefix + "…" }

// GoString hides the key from logs.
func (k Key) GoString() string { return k.String() }

// Parse reads a key from its text.
func Parse(text string) (Key, error) {
	var k Key
	digits, ok := strings.CutPrefix(strings.TrimSpace(text), prefix)
	b, err := hex.DecodeString(digits)
	if !ok || err != nil || len(b) != len(k) {
		return k, fmt.Errorf("not a seal key: want %s and %d hex digits", prefix, 2*len(k))
	}
	copy(k[:], b)
	return k, nil
}

// ID names a first key in seals. The key cannot be derived from it.
func (k Key) ID() string {
	id := k.derive("id")
	return hex.EncodeToString(id[:8])
}

// Next returns the key of the next seal. There is no way back.
func (k Key) Next() Key { return k.derive("next") }

// MAC returns the seal of a message under this key, in hex.
func (k Key) MAC(message []byte) string {
	by := k.derive("mac")
	h := hmac.New(sha256.New, by[:])
	h.Write(message)
	return hex.EncodeToString(h.Sum(nil))
}

// Check reports whether mac is the seal of a message under this key.
func (k Key) Check(message []byte, mac string) bool {
	return hmac.Equal([]byte(k.MAC(message)), []byte(strings.ToLower(mac)))
}

func (k Key) derive(use string) Key {
	h := hmac.New(sha256.New, k[:])
	h.Write([]byte("audit seal: " + use))
	return Key(h.Sum(nil))
}
