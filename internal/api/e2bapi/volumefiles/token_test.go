package volumefiles

import (
	"errors"
	"strings"
	"testing"
)

func TestATokenIsOfOneVolumeAndKey(t *testing.T) {
	tokens := NewTokens()
	g := Grant{Volume: "vol-1", Tenant: "acme", KeyID: "k1"}
	token := tokens.Make(g)
	if got, err := tokens.Parse(token); err != nil || got != g {
		t.Fatalf("got %+v, %v", got, err)
	}
	other := tokens.Make(Grant{Volume: "vol-2", Tenant: "acme", KeyID: "k1"})
	head, _, _ := strings.Cut(other, ".")
	_, sum, _ := strings.Cut(token, ".")
	for what, bad := range map[string]string{
		"another daemon's": NewTokens().Make(g), "empty": "", "none": "none", "another body": head + "." + sum,
		"cut": token[:len(token)-1], "longer": token + "x", "without its prefix": token[3:], "huge": token + strings.Repeat("x", 2000),
	} {
		if _, err := tokens.Parse(bad); !errors.Is(err, ErrToken) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
