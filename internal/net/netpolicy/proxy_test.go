package netpolicy

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestAPoliciesProxy(t *testing.T) {
	for name, rule := range map[string]ProxyRule{
		"socks5":           {URL: "socks5://proxy.example.com"},
		"http":             {URL: "http://proxy.example.com:3128", User: "me", Secret: "PROXY_PASSWORD"},
		"an address":       {URL: "http://93.184.216.34:3128"},
		"an IPv6 address":  {URL: "socks5://[2606:2800:220:1::1]:1080", Names: true},
		"in capitals":      {URL: "socks5://PROXY.example.com"},
		"a missing secret": {URL: "socks5://proxy.example.com", User: "me", Secret: "X", Missing: "no such secret"},
	} {
		p, err := Compile(Spec{Default: Public, Proxy: &rule})
		if err != nil || p.Proxy() == nil || p.Proxy().Reach == nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if v := p.Proxy(); rule.Secret != "" && v.Missing == "" {
			t.Errorf("%s: a secret without a value is not missing", name)
		}
	}
	for text, rule := range map[string]ProxyRule{
		"want socks5://":         {URL: "proxy.example.com:3128"},
		"or http://[":            {URL: "https://proxy.example.com:443"},
		"want socks5:// ":        {URL: "http://proxy.example.com"},
		"name of a secret":       {URL: "socks5://me:pass@proxy.example.com"},
		"go together":            {URL: "socks5://proxy.example.com", User: "me"},
		"user and secret":        {URL: "socks5://proxy.example.com", Secret: "X"},
		"no name of a secret":    {URL: "socks5://proxy.example.com", User: "me", Secret: "{X}"},
		"ports of the host":      {URL: "http://host.forkd.internal:3128"},
		"proxy: url: ":           {URL: "http://*.example.com:3128"},
		"an address has no zone": {URL: "http://[fe80::1%25eth0]:3128"},
		"1 to 255 characters":    {URL: "socks5://proxy.example.com", User: strings.Repeat("x", 300), Secret: "X", Password: "y"},
	} {
		if _, err := Compile(Spec{Proxy: &rule}); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(text)) {
			t.Errorf("%+v: %v, want %q", rule, err, text)
		}
	}
}

func TestTheProxyIsUnderTheCeilingAndTheFloor(t *testing.T) {
	ceiling, err := Compile(Spec{Default: Public, Deny: []string{"93.184.216.0/24"}})
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]Verdict{"http://93.184.217.1:3128": Allowed, "http://93.184.216.34:3128": Denied,
		"http://10.0.0.1:3128": Denied, "http://127.0.0.1:3128": Denied, "http://169.254.169.254:80": Denied} {
		p, err := CompileWithin(Spec{Default: Public, Proxy: &ProxyRule{URL: url}}, Bounds{Ceiling: ceiling})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if d := p.Proxy().Reach.Judge(Query{Protocol: TCP, Addr: p.Proxy().Addr}); d.Verdict != want {
			t.Errorf("%s: %+v", url, d)
		}
	}
}

func TestTheSecretOfAProxy(t *testing.T) {
	spec := Spec{Default: Public, Proxy: &ProxyRule{URL: "socks5://proxy.example.com", User: "me", Secret: "P"}}
	if !spec.Refers() {
		t.Error("it refers to no secret")
	}
	full := spec.WithSecrets(func(name string) (string, error) { return "value of " + name, nil })
	if full.Proxy.Password != "value of P" || spec.Proxy.Password != "" {
		t.Errorf("%+v, and the original %+v", full.Proxy, spec.Proxy)
	}
	if p, err := Compile(full); err != nil || p.Proxy().Missing != "" || p.Proxy().URL.Password != "value of P" {
		t.Errorf("%+v, %v", p, err)
	}
	for why, value := range map[string]func(string) (string, error){
		"gone":        func(string) (string, error) { return "", errors.New("gone") },
		"no password": func(string) (string, error) { return "", nil },
		"password":    func(string) (string, error) { return strings.Repeat("x", 300), nil },
	} {
		got := spec.WithSecrets(value)
		p, err := Compile(got)
		if err != nil || !strings.Contains(p.Proxy().Missing, why) || p.Proxy().URL.Password != "" {
			t.Errorf("%s: %+v, %v", why, got.Proxy, err)
		}
	}
	other := spec.WithoutReferences()
	p, err := Compile(other)
	if err != nil || other.Refers() || p.Proxy().Missing == "" || spec.Proxy.Secret != "P" {
		t.Errorf("for another owner: %+v, %v", other.Proxy, err)
	}
	if kept := spec.ReferencesOnly(); kept.Proxy != spec.Proxy {
		t.Errorf("a snapshot keeps %+v", kept.Proxy)
	}
	a, _ := Compile(full)
	b, _ := Compile(spec.WithSecrets(func(string) (string, error) { return "rotated", nil }))
	if a.Proxy().Same(b.Proxy()) || !a.Proxy().Same(a.Proxy()) || a.Proxy().Same(nil) || !(*Via)(nil).Same(nil) {
		t.Error("proxies with other passwords are the same")
	}
}

// A password as text is for one sandbox: snapshots and other sandboxes do not connect without it.
func TestAPasswordAsText(t *testing.T) {
	spec := Spec{Default: Public, Proxy: &ProxyRule{URL: "socks5://proxy.example.com", User: "me", Password: "geheim"}}
	p, err := Compile(spec.WithSecrets(nil))
	if err != nil || p.Proxy().Missing != "" || p.Proxy().URL.Password != "geheim" || spec.Bound() == "" {
		t.Errorf("%+v, %v, bound %q", p, err, spec.Bound())
	}
	kept := spec.ReferencesOnly()
	b, err := json.Marshal(kept)
	if err != nil || strings.Contains(string(b), "geheim") || spec.Proxy.Password != "geheim" {
		t.Errorf("a snapshot keeps %s, %v", b, err)
	}
	p, err = Compile(kept.WithoutReferences())
	if err != nil || !strings.Contains(p.Proxy().Missing, "set the policy again") {
		t.Errorf("a clone: %+v, %v", p, err)
	}
	for _, bad := range []ProxyRule{{Password: "p"}, {User: "me", Password: "a\nb"}, {User: "me", Password: strings.Repeat("x", 300)}} {
		bad.URL = "socks5://proxy.example.com"
		if _, err := Compile(Spec{Proxy: &bad}); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func TestAPolicyFileWithAProxy(t *testing.T) {
	s, err := ParseFile("p.yaml", []byte("default: public\nproxy:\n  url: http://proxy.example.com:3128\n  user: me\n  secret: P\n  names: true\n"))
	if err != nil || *s.Proxy != (ProxyRule{URL: "http://proxy.example.com:3128", User: "me", Secret: "P", Names: true}) {
		t.Errorf("%+v, %v", s.Proxy, err)
	}
	for _, bad := range []string{"proxy: socks5://x", "proxy:\n  url: ftp://x", "proxy:\n  url: socks5://x\n  password: y"} {
		if _, err := ParseFile("p.yaml", []byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
