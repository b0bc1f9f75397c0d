package layer

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// ID identifies a layer. It is random, not a content hash, because a branch must not wait for hashing. The zero
// ID is invalid.
type ID [16]byte

// NewID returns a new, unique ID.
func NewID() ID {
	var id ID
	rand.Read(id[:]) // never fails
	return id
}

// String returns the ID as 32 hexadecimal digits. It is also the name of the layer's file.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether it is the zero ID.
func (id ID) IsZero() bool { return id == ID{} }

// ParseID parses the output of String. Other spellings are errors, so each ID has one spelling.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) == 2*len(id) {
		if _, err := hex.Decode(id[:], []byte(s)); err == nil && id.String() == s && !id.IsZero() {
			return id, nil
		}
	}
	return ID{}, fmt.Errorf("%.40q is no layer ID: want %d lower-case hexadecimal digits", s, 2*len(id))
}

// MarshalText returns String, for manifests.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses with ParseID.
func (id *ID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseID(string(b))
	return err
}
