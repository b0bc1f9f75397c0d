package layer

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// ID names a layer. It is random and not made of the content, because a branch
// must not wait until everything is hashed. The zero ID names nothing.
type ID [16]byte

// NewID makes an ID that no other layer has.
func NewID() ID {
	var id ID
	rand.Read(id[:]) // never fails
	return id
}

// String is the ID as 32 hexadecimal digits, which is also its file's name.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether it names nothing.
func (id ID) IsZero() bool { return id == ID{} }

// ParseID reads what String wrote, and nothing else: one ID has one spelling.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) == 2*len(id) {
		if _, err := hex.Decode(id[:], []byte(s)); err == nil && id.String() == s && !id.IsZero() {
			return id, nil
		}
	}
	return ID{}, fmt.Errorf("%.40q is no layer ID: want %d lower-case hexadecimal digits", s, 2*len(id))
}

// MarshalText is String, for manifests.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is ParseID.
func (id *ID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseID(string(b))
	return err
}
