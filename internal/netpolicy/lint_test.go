package netpolicy

import (
	"strings"
	"testing"
)

func TestLint(t *testing.T) {
	for _, c := range []struct {
		what string
		spec Spec
		want []string // of each warning, in order
	}{
		{"nothing to say", Spec{Allow: []string{"a.test:443", "9.9.9.9", "*.a.test"}}, nil},
		{"deny rules of a closed policy", Spec{Allow: []string{"a.test"}, Deny: []string{"b.test"}}, []string{`deny rule "b.test": never acts: the default is deny`}},
		{"deny under a wider allow", Spec{Default: Public, Allow: []string{"9.0.0.0/8"}, Deny: []string{"9.9.9.9:80"}}, []string{`deny rule "9.9.9.9:80": never acts: the allow rule "9.0.0.0/8" beats it`}},
		{"an exception to a deny rule", Spec{Default: Public, Allow: []string{"9.9.9.9"}, Deny: []string{"9.0.0.0/8"}}, nil},
		{"allow without one", Spec{Default: Public, Allow: []string{"9.9.9.9"}}, []string{`allow rule "9.9.9.9": never acts: the default is public`}},
		{"the floor", Spec{Allow: []string{"10.0.0.1", "169.254.0.0/16", "localhost", HostName}}, []string{"never acts: 10.0.0.1 is in", "never acts: 169.254", "never acts: localhost", "no port of the host"}},
		{"twice", Spec{Allow: []string{"*.a.test", "b.a.test:443"}}, []string{`is not needed: the rule "*.a.test"`}},
		{"QUIC", Spec{Allow: []string{"a.test:443/udp"}}, []string{"QUIC"}},
		{"a whole top-level domain", Spec{Allow: []string{"*.com"}}, []string{"opens all of .com"}},
		{"one family", Spec{Default: Public, Deny: []string{"0.0.0.0/0"}}, []string{"says nothing of IPv6"}},
		{"both", Spec{Default: Public, Deny: []string{"0.0.0.0/0", "::/0"}}, nil},
	} {
		got, err := Lint(c.spec, nil)
		ok := err == nil && len(got) == len(c.want)
		for i := range c.want {
			ok = ok && strings.Contains(got[i].String(), c.want[i])
		}
		if !ok {
			t.Errorf("%s: got %q, %v", c.what, got, err)
		}
	}
	if _, err := Lint(Spec{Allow: []string{"a b"}}, nil); err == nil {
		t.Error("a wrong rule is no error")
	}
}
