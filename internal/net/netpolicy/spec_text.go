package netpolicy

import (
	"fmt"
	"strings"
)

// UnmarshalText takes a default in the words that users have for it: deny or none, public or allow.
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

// isPublic takes a Spec that was made in Go, too, where nobody has called UnmarshalText.
func (d Default) isPublic() (bool, error) {
	var known Default
	if err := known.UnmarshalText([]byte(d)); err != nil {
		return false, err
	}
	return known == Public, nil
}

// Preset is a policy by its name: "none" lets nothing out, "public" everything that the
// floor lets out.
func Preset(name string) (Spec, error) {
	switch name {
	case "none":
		return Spec{Default: Deny}, nil
	case "public":
		return Spec{Default: Public}, nil
	}
	return Spec{}, fmt.Errorf("there is no policy %q: it is none, public, or a policy file", name)
}
