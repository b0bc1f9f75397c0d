package netpolicy

import (
	"fmt"
	"strings"
)

// UnmarshalText accepts the users' words for a default: deny or none, public or allow.
func (d *Default) UnmarshalText(text []byte) error {
	switch strings.ToLower(string(text)) {
	case "":
		*d = ""
	case "deny", "none":
		*d = Deny
	case "public", "allow":
		*d = Public
	default:
		return fmt.Errorf("default is deny or public, not %q", text)
	}
	return nil
}

// isPublic also accepts a Spec made in Go, without UnmarshalText.
func (d Default) isPublic() (bool, error) {
	var known Default
	if err := known.UnmarshalText([]byte(d)); err != nil {
		return false, err
	}
	return known == Public, nil
}
