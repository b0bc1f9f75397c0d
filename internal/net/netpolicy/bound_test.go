package netpolicy

import "testing"

func TestBound(t *testing.T) {
	for name, c := range map[string]struct {
		spec Spec
		free bool
	}{
		"none":            {Spec{}, true},
		"public":          {Spec{Default: Public, Deny: []string{HostName}}, true},
		"names":           {Spec{Allow: []string{"example.com:443", "*.test", "10.0.0.0/8"}, Limits: Limits{Flows: 4}}, true},
		"a proxy":         {Spec{Proxy: &ProxyRule{URL: "http://proxy.test:3128"}}, true},
		"a password":      {Spec{Proxy: &ProxyRule{URL: "http://proxy.test:3128", User: "u", Secret: "S"}}, false},
		"a local proxy":   {Spec{Proxy: &ProxyRule{URL: "http://HOST.forkd.internal:3128"}}, false},
		"a port":          {Spec{Allow: []string{"example.com", "Host.Forkd.Internal:80"}}, false},
		"headers":         {Spec{Headers: []HeaderRule{{Host: "a.test"}}}, false},
		"signatures":      {Spec{Sign: []SignRule{{Host: "s3.test"}}}, false},
		"that of a child": {Spec{Within: &Spec{Allow: []string{HostName + ":80"}}}, false},
	} {
		if why := c.spec.Bound(); (why == "") != c.free {
			t.Errorf("%s: %q", name, why)
		}
	}
}
