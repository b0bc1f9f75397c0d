package netpolicy

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestParseRule(t *testing.T) {
	for text, want := range map[string]string{
		"example.com":                 "example.com",
		" Example.COM. ":              "example.com",
		"example.com:443":             "example.com:443",
		"example.com:8000-8999/TCP":   "example.com:8000-8999/tcp",
		"example.com:53/udp":          "example.com:53/udp",
		"example.com/udp":             "example.com/udp",
		"*.example.com:443":           "*.example.com:443",
		"bücher.example":              "xn--bcher-kva.example",
		"XN--BCHER-KVA.example":       "xn--bcher-kva.example",
		"*.例え.test":                   "*.xn--r8jz45g.test",
		"_dmarc.example.com":          "_dmarc.example.com",
		"intranet":                    "intranet",
		"1.2.3.4":                     "1.2.3.4",
		"1.2.3.4:80-80":               "1.2.3.4:80",
		"10.0.0.0/8":                  "10.0.0.0/8",
		"10.0.0.0/8:443/tcp":          "10.0.0.0/8:443/tcp",
		"0.0.0.0/0":                   "0.0.0.0/0",
		"::/0":                        "::/0",
		"2001:DB8::1":                 "2001:db8::1",
		"[2001:db8::1]":               "2001:db8::1",
		"[2001:db8::1]:443":           "[2001:db8::1]:443",
		"2001:db8::/32":               "2001:db8::/32",
		"[2001:db8::/32]:443-444/udp": "[2001:db8::/32]:443-444/udp",
		"2001:db8::/32:443":           "[2001:db8::/32]:443",
		"::ffff:1.2.3.4":              "1.2.3.4",
		"[::ffff:1.2.3.0/120]:1":      "1.2.3.0/24:1",
		"64:ff9b::1.2.3.4":            "1.2.3.4",
	} {
		r, err := ParseRule(text)
		if err != nil || r.String() != want {
			t.Errorf("%q: got %q, %v, want %q", text, r.String(), err, want)
		}
	}
}

func TestWrongRulesSayWhatIsRight(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "is empty",
		"a b":                            "blank",
		"https://example.com/x":          `"example.com"`,
		"example.com/path":               "no protocol",
		"example.com/":                   "slash",
		"example.com/icmp":               "/tcp, /udp",
		"example.com:":                   "leave it away",
		"example.com:*":                  "leave the port away",
		"example.com:0":                  "1 to 65535",
		"example.com:65536":              "1 to 65535",
		"example.com:+80":                "1 to 65535",
		"example.com:http":               "1 to 65535",
		"example.com:90-80":              "80-90",
		"example.com:80-":                "no port",
		":443":                           "0.0.0.0/0",
		"*":                              "default: public",
		"*:443":                          "default: public",
		"*.":                             "no name",
		"a.*.com":                        "*.example.com",
		"*.*.com":                        "*.example.com",
		"*example.com":                   "*.example.com",
		"exa..mple":                      "empty part",
		"-a.com":                         "hyphen",
		"a;b.com":                        "no host name",
		strings.Repeat("a", 64) + ".com": "63",
		strings.Repeat("abc.", 64) + "c": "253",
		strings.Repeat("x", 400):         "longer than",
		"10.0.0.1/8":                     "10.0.0.0/8",
		"10.0.0.0/33":                    "no CIDR",
		"example.com/24":                 "no CIDR",
		"127.1":                          "four numbers",
		"1.2.3.256":                      "four numbers",
		"01.2.3.4":                       "four numbers",
		"0x7f.0x1":                       "four numbers",
		"*.1.2.3.4":                      "four numbers",
		"2001:db8::1:443:x":              "[2001:db8::1]:443",
		"[2001:db8::1":                   "without a ]",
		"[1.2.3.4]:80":                   "brackets",
		"[2001:db8::1]443":               "after ]",
		"fe80::1%eth0":                   "zone",
		"xn--zzzzzzzzzz99999.com":        "internationalised",
	} {
		r, err := ParseRule(text)
		var of *RuleError
		if !errors.As(err, &of) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %+v, %v, want an error with %q", text, r, err, want)
		}
	}
}

func TestRulesSpeakOfWhatTheySay(t *testing.T) {
	set := func(texts ...string) ruleSet {
		rules, err := parseRules("allow", texts)
		if err != nil {
			t.Fatal(err)
		}
		return newRuleSet(rules)
	}
	names := set("*.a.test", "b.test", "*.x.a.test:1")
	for name, want := range map[string]string{
		"a.test": "", "c.a.test": "*.a.test", "d.c.a.test": "*.a.test", "b.test": "b.test", "c.b.test": "",
		"ba.test": "", "xa.test": "", "y.x.a.test": "*.x.a.test:1",
	} {
		got := ""
		if r := names.byName(name, TCP, 1); r != nil {
			got = r.Text
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	nets := set("10.0.0.0/8", "10.1.0.0/16:80", "10.1.2.3", "::/0:5", "2001:db8::/32")
	for addr, want := range map[string]string{
		"10.0.0.0": "10.0.0.0/8", "10.255.255.255": "10.0.0.0/8", "10.1.9.9": "10.1.0.0/16:80", "10.1.2.3": "10.1.2.3",
		"11.0.0.0": "", "9.255.255.255": "", "2001:db8:1::": "2001:db8::/32", "2001:db9::": "",
	} {
		got := ""
		if r := nets.byAddr(netip.MustParseAddr(addr), TCP, 80); r != nil {
			got = r.Text
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", addr, got, want)
		}
	}
}

func FuzzRule(f *testing.F) {
	for _, s := range []string{"example.com:443/tcp", "*.a.b:1-2", "[::1]:5/udp", "10.0.0.0/8", "bücher.de", "127.1", "xn--a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRule(s)
		if err != nil {
			return
		}
		again, err := ParseRule(r.String())
		if err != nil || again.String() != r.String() || again.Prefix != r.Prefix || again.Name != r.Name {
			t.Errorf("%q is %q, and that is %q, %v", s, r, again, err)
		}
	})
}
