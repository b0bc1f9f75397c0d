package target

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

func TestWhereARequestGoes(t *testing.T) {
	const id, shown = "sb-5f3a0012-0001", "sb5f3a00120001"
	for _, c := range []struct {
		name, host, id, port string
		want                 Target
		err                  string // "none" is ErrNone
	}{
		{"headers", "localhost:3000", shown, "49983", Target{id, shown, 49983}, ""},
		{"headers before the host", "80-" + shown + ".forkd.localhost", shown, "49999", Target{id, shown, 49999}, ""},
		{"an id with dashes", "localhost", id, "80", Target{id, shown, 80}, ""},
		{"an older client's id behind it", "localhost", shown + "-6532622b", "80", Target{id, shown, 80}, ""},
		{"another's id", "localhost", "i1b2c3", "80", Target{"i1b2c3", "i1b2c3", 80}, ""},
		{"one header", "localhost", shown, "", Target{}, "missing header E2b-Sandbox-Port"},
		{"the other header", "localhost", "", "80", Target{}, "missing header E2b-Sandbox-Id"},
		{"a bad port", "localhost", shown, "0", Target{}, "invalid sandbox port"},
		{"a large port", "localhost", shown, "65536", Target{}, "invalid sandbox port"},
		{"a bad id", "localhost", "../x", "80", Target{}, "invalid sandbox id"},
		{"a long id", "localhost", strings.Repeat("a", 65), "80", Target{}, "invalid sandbox id"},

		{"the daemon's domain", "8080-" + shown + ".forkd.localhost:41837", "", "", Target{id, shown, 8080}, ""},
		{"another domain", "3000-" + shown + ".sbx.example.test", "", "", Target{id, shown, 3000}, ""},
		{"capitals and a dot", "3000-SB5F3A00120001.Example.Test.", "", "", Target{id, shown, 3000}, ""},
		{"an older client's host", "3000-" + shown + "-6532622b.example.test", "", "", Target{id, shown, 3000}, ""},
		{"none of ours in the domain", "3000-iabc.forkd.localhost", "", "", Target{"iabc", "iabc", 3000}, ""},
		{"none of ours elsewhere", "10-0-0-5.compute.internal", "", "", Target{}, "none"},
		{"a label alone", "3000-" + shown, "", "", Target{}, "none"},
		{"localhost", "localhost:3000", "", "", Target{}, "none"},
		{"an address", "127.0.0.1:3000", "", "", Target{}, "none"},
		{"IPv6", "[::1]:3000", "", "", Target{}, "none"},
		{"no host", "", "", "", Target{}, "none"},
		{"a host with a bad port", "0-" + shown + ".a.b", "", "", Target{}, "invalid sandbox port"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &http.Request{Host: c.host, Header: http.Header{}}
			if c.id != "" {
				r.Header.Set(HeaderSandbox, c.id)
			}
			if c.port != "" {
				r.Header.Set(HeaderPort, c.port)
			}
			got, err := Of(r, "forkd.localhost")
			switch {
			case c.err == "" && (err != nil || got != c.want):
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			case c.err == "none" && !errors.Is(err, ErrNone):
				t.Errorf("got %+v, %v", got, err)
			case c.err != "" && c.err != "none" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func FuzzOf(f *testing.F) {
	f.Add("80-sb5f3a00120001.forkd.localhost", "", "")
	f.Add("localhost:3000", "sb5f3a00120001", "49983")
	f.Add("[::1]:80", "sb-5f3a0012-0001", "1")
	f.Fuzz(func(t *testing.T, host, id, port string) {
		r := &http.Request{Host: host, Header: http.Header{HeaderSandbox: {id}, HeaderPort: {port}}}
		got, err := Of(r, "forkd.localhost")
		if err != nil {
			return
		}
		if got.Port == 0 || !anID.MatchString(got.Shown) || sandbox.DNSID(got.ID) != got.Shown {
			t.Errorf("%q, %q, %q: %+v", host, id, port, got)
		}
	})
}
