package proxyurl_test

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/leaf/proxyurl"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]proxyurl.URL{
		"socks5://proxy":            {Scheme: proxyurl.SOCKS5, Host: "proxy", Port: 1080},
		"socks5://[::1]:9/":         {Scheme: proxyurl.SOCKS5, Host: "::1", Port: 9},
		"http://me:p%3Ass@a.b:3128": {Scheme: proxyurl.HTTP, Host: "a.b", Port: 3128, User: "me", Password: "p:ss"},
	} {
		if got, err := proxyurl.Parse(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	long := strings.Repeat("x", 256)
	for _, text := range []string{"", "proxy:1080", "http://proxy", "https://proxy:1", "socks5h://proxy", "http://proxy:0",
		"http://proxy:65536", "http://:3128", "http://proxy:1/x", "http://proxy:1?q", "http://proxy:1#f", "socks5://geheim@proxy",
		"socks5://:geheim@proxy", "socks5://geheim:@proxy", "socks5://" + long + ":geheim@proxy", "http://geheim%3A:geheim@proxy:1",
		"http://geheim%0a:geheim@proxy:1", "http://geheim:geheim%7f@proxy:1"} {
		if got, err := proxyurl.Parse(text); err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("http://me:secret@proxy:3128")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := proxyurl.Parse(text)
		if err == nil && (u.Host == "" || u.Port == 0 || u.Scheme != proxyurl.HTTP && u.Scheme != proxyurl.SOCKS5 ||
			(u.User == "") != (u.Password == "")) {
			t.Errorf("%q is %+v", text, u)
		}
	})
}
