package ingress

import (
	"errors"
	"net/http"
	"testing"
)

func TestRoutes(t *testing.T) {
	one := Target{Sandbox: "sb-5f3a0012-0001", Port: 8080}
	for name, c := range map[string]struct {
		host     string
		id, port string // headers
		want     Target
		none     bool // for the API; otherwise, without a target, refused
	}{
		"id without dashes":       {host: "8080-sb5f3a00120001.d.test", want: one},
		"with a port":             {host: "8080-sb5f3a00120001.d.test:8889", want: one},
		"id with dashes":          {host: "8080-sb-5f3a0012-0001.d.test", want: one},
		"capitals and a dot":      {host: "8080-SB5F3A00120001.D.test.", want: one},
		"E2B's old form":          {host: "8080-sb5f3a00120001-6532622b.d.test", want: one},
		"a strange id":            {host: "1-other.d.test", want: Target{Sandbox: "other", Port: 1}},
		"headers":                 {host: "localhost:3000", id: "sb5f3a00120001", port: "8080", want: one},
		"headers before host":     {host: "1-x.d.test", id: "sb-5f3a0012-0001", port: "8080", want: one},
		"one header":              {host: "localhost", id: "sb5f3a00120001"},
		"the other":               {host: "localhost", port: "80"},
		"a header that is none":   {host: "localhost", id: "sb/../x", port: "80"},
		"port 0":                  {host: "0-sb5f3a00120001.d.test"},
		"port over all":           {host: "65536-sb5f3a00120001.d.test"},
		"no id":                   {host: "80--.d.test"},
		"the domain":              {host: "d.test", none: true},
		"a name below it":         {host: "api.d.test", none: true},
		"deeper":                  {host: "8080-sb5f3a00120001.x.d.test", none: true},
		"another domain":          {host: "8080-sb5f3a00120001.e.test", none: true},
		"one that ends alike":     {host: "8080-sb5f3a00120001.evild.test", none: true},
		"an address":              {host: "127.0.0.1:8889", none: true},
		"an address of six":       {host: "[::1]:8889", none: true},
		"nothing":                 {host: "", none: true},
		"a number without a rest": {host: "8080.d.test", none: true},
	} {
		r := &http.Request{Host: c.host, Header: http.Header{}}
		for k, v := range map[string]string{HeaderSandbox: c.id, HeaderPort: c.port} {
			if v != "" {
				r.Header.Set(k, v)
			}
		}
		got, err := route(r, "d.test")
		if got != c.want || errors.Is(err, errNone) != c.none || (err == nil) != (c.want != Target{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		h := New(Config{Domain: "D.test."})
		if h.Match(r) == c.none {
			t.Errorf("%s: match is %v", name, c.none)
		}
		if New(Config{}).Match(r) {
			t.Errorf("%s: matches without a domain", name)
		}
	}
}

func TestDomains(t *testing.T) {
	for domain, ok := range map[string]bool{
		"": true, "forkd.localhost": true, "localhost": true, "x-y.Example.com": true,
		"*.x": false, "x:80": false, "-x": false, "x..y": false, "x/y": false, "http://x": false, ".": false,
	} {
		if ValidDomain(domain) != ok {
			t.Errorf("%q: want %v", domain, ok)
		}
	}
}

func FuzzRoute(f *testing.F) {
	f.Add("8080-sb5f3a00120001.d.test", "", "")
	f.Add("x", "sb-5f3a0012-0001", "80")
	f.Fuzz(func(t *testing.T, host, id, port string) {
		r := &http.Request{Host: host, Header: http.Header{HeaderSandbox: {id}, HeaderPort: {port}}}
		if to, err := route(r, "d.test"); err == nil && (to.Port == 0 || !anID.MatchString(to.Sandbox)) {
			t.Errorf("%q, %q, %q became %+v", host, id, port, to)
		}
	})
}
