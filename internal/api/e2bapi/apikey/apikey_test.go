package apikey

import (
	"regexp"
	"testing"
)

func TestAKeyIsAsClientsWantIt(t *testing.T) {
	const token = "0123456789abcdef"
	key := Of(token)
	if !regexp.MustCompile(`^e2b_[0-9a-f]{40}$`).MatchString(key) || Of(token) != key || Of("other") == key {
		t.Errorf("the key is %q", key)
	}
	for shown, want := range map[string]bool{key: true, token: true, "": false, "e2b_": false, key[:43]: false} {
		if Matches(shown, token) != want {
			t.Errorf("%q: want %v", shown, want)
		}
	}
	if Of(key) != key {
		t.Error("a tenant's key is given another form")
	}
	if Of("") != "" || Matches("", "") || Matches(Of(""), "") {
		t.Error("a daemon without a token has a key")
	}
}
