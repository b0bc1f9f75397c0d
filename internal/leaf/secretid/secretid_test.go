package secretid

import (
	"strings"
	"testing"
)

func TestValid(t *testing.T) {
	for _, c := range []struct {
		secret Secret
		valid  bool
	}{
		{Secret{"key", "a1", 1}, true},
		{Secret{strings.Repeat("a", 64), "A_-9", 7}, true},
		{Secret{strings.Repeat("a", 65), "a1", 1}, false},
		{Secret{"", "a1", 1}, false},
		{Secret{"key\n", "a1", 1}, false},
		{Secret{"key", "../a", 1}, false},
		{Secret{"key", "a1", 0}, false},
	} {
		if got := c.secret.Valid(); got != c.valid {
			t.Errorf("%+v: valid %v, want %v", c.secret, got, c.valid)
		}
	}
}
