//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/idtoken"
)

func TestKeysOfIdentityTokensAreShownAndRotated(t *testing.T) {
	data := t.TempDir()
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		a := &app{}
		root := newRoot(a)
		a.Out, a.Err = &out, &out
		root.SetArgs(append(args, "--data", data))
		root.SetOut(&out)
		root.SetErr(&out)
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	for _, command := range []string{"show", "rotate"} {
		if _, err := run("identity", command); err == nil || !strings.Contains(err.Error(), "--identity-issuer") {
			t.Errorf("%s without keys: %v", command, err)
		}
	}
	if _, err := idtoken.Open(idtoken.Config{URL: "https://id.example", Lifetime: idtoken.DefaultLifetime,
		Dir: filepath.Join(data, identityFolder)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		keys int
	}{{nil, 1}, {[]string{"rotate"}, 2}, {[]string{"rotate", "--revoke"}, 1}} {
		if c.args != nil {
			if out, err := run(append([]string{"identity"}, c.args...)...); err != nil {
				t.Fatalf("%v: %v, %s", c.args, err, out)
			}
		}
		out, err := run("identity", "show", "--json")
		var keys []idtoken.KeyInfo
		if err == nil {
			err = json.Unmarshal([]byte(out), &keys)
		}
		if err != nil || len(keys) != c.keys || !keys[len(keys)-1].Until.IsZero() {
			t.Errorf("after %v: %v, %s", c.args, err, out)
		}
	}
	if out, err := run("identity", "show"); err != nil || !strings.Contains(out, "in use") {
		t.Errorf("%v, %s", err, out)
	}
}

func TestFlagsOfTheIssuerAreChecked(t *testing.T) {
	for _, c := range []struct{ flag, value, want string }{
		{"--identity-issuer", "http://forkd.example", "--identity-issuer"},
		{"--identity-issuer", "https://forkd.example/", "slash"},
		{"--identity-lifetime", "2h", "--identity-lifetime is 2h0m0s"},
		{"--identity-lifetime", "1s", "1m0s to 1h0m0s"},
	} {
		var out bytes.Buffer
		a := &app{}
		root := newRoot(a)
		a.Out, a.Err = &out, &out
		root.SetArgs([]string{"serve", "--check", "--vmm", "/bin/true", c.flag, c.value})
		root.SetOut(&out)
		root.SetErr(&out)
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v", c.flag, c.value, err)
		}
	}
}
