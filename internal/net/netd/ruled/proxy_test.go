package ruled_test

import (
	"io"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netwire"
	"github.com/forkd/forkd/internal/net/upstream/proxytest"
)

// proxy is a policy for everything public, through a proxy.
func proxy(rule netpolicy.ProxyRule) netpolicy.Spec {
	return netpolicy.Spec{Default: netpolicy.Public, Proxy: &rule}
}

func TestAPolicyWithAProxy(t *testing.T) {
	h := newHost(t)
	h.net.Echo(t, "93.184.216.34:7")
	s := proxytest.HTTP(t, h.net.Listen(t, "93.184.216.35:3128"), 0, func(s *proxytest.Server) { s.User, s.Password = "me", "secret" })
	v := h.bind(proxy(netpolicy.ProxyRule{URL: "http://other.example.net:3128", User: "me", Secret: "P", Password: "secret"}),
		control.Binding{})
	far := netip.MustParseAddrPort("93.184.216.34:7")
	c, _ := v.ask(netwire.TCP, far.String())
	if c == nil {
		t.Fatal("it is not connected")
	}
	io.WriteString(c, "hello")
	if got := make([]byte, 5); read(t, c, got) != "hello" || !slices.Equal(s.Asked(), []netip.AddrPort{far}) {
		t.Errorf("read %q; the proxy was asked for %v", got, s.Asked())
	}
	for p, to := range map[netwire.Protocol]string{netwire.UDP: "93.184.216.34:7", netwire.Echo: "93.184.216.34:0"} {
		if c, why := v.ask(p, to); c != nil || why != netwire.Prohibited {
			t.Errorf("%v around the proxy: %v", p, why)
		}
	}
	// The rules apply as without a proxy.
	if c, why := v.ask(netwire.TCP, "10.0.0.1:80"); c != nil || why != netwire.Prohibited {
		t.Errorf("a private address through the proxy: %v", why)
	}
	// Another password cuts the connection: it was opened with the old one.
	if _, err := h.s.Update("a", proxy(netpolicy.ProxyRule{URL: "http://other.example.net:3128", User: "me", Secret: "P",
		Password: "rotated"})); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err == nil {
		t.Error("the connection with the old password goes on")
	}
	if c, _ := v.ask(netwire.TCP, far.String()); c != nil {
		t.Error("it connects with a wrong password")
	}
}

func TestAProxyThatMayNotBeReached(t *testing.T) {
	h := newHost(t)
	h.net.Echo(t, "93.184.216.34:7")
	for name, rule := range map[string]netpolicy.ProxyRule{
		"a private address":          {URL: "http://10.0.0.1:3128"},
		"the host's own":             {URL: "http://127.0.0.1:3128"},
		"a name of such addresses":   {URL: "http://rebind.example.com:3128"},
		"a name that does not exist": {URL: "http://nobody.example.com:3128"},
		"a secret without a value":   {URL: "http://other.example.net:3128", User: "me", Secret: "P", Missing: "no such secret"},
		"nobody listens":             {URL: "http://other.example.net:3128"},
	} {
		v := h.bind(proxy(rule), control.Binding{VM: name})
		if c, why := v.ask(netwire.TCP, "93.184.216.34:7"); c != nil || why == 0 {
			t.Errorf("%s: connected", name)
		}
	}
}

// A guest chooses what names of its own resolve to. A proxy that resolves names must not get one that no rule allows.
func TestNamesForTheProxy(t *testing.T) {
	h := newHost(t)
	h.net.Echo(t, "93.184.216.34:7")
	s := proxytest.On(t, h.net.Listen(t, "93.184.216.35:1080"), func(s *proxytest.Server) {
		s.Hosts = map[string]netip.Addr{"example.com": netip.MustParseAddr("93.184.216.34")}
	})
	via := &netpolicy.ProxyRule{URL: "socks5://93.184.216.35", Names: true}
	for name, tc := range map[string]struct {
		spec  netpolicy.Spec
		names bool
	}{
		"no rules":          {netpolicy.Spec{Default: netpolicy.Public, Proxy: via}, true},
		"a rule by name":    {netpolicy.Spec{Allow: []string{"example.com"}, Proxy: via}, true},
		"a rule by address": {netpolicy.Spec{Allow: []string{"93.184.216.34"}, Proxy: via}, false},
		"a denied address":  {netpolicy.Spec{Default: netpolicy.Public, Deny: []string{"93.184.216.99"}, Proxy: via}, false},
	} {
		before := len(s.Names())
		v := h.bind(tc.spec, control.Binding{VM: name})
		v.resolve("example.com", dnsmessage.TypeA)
		c, _ := v.ask(netwire.TCP, "93.184.216.34:7")
		if c == nil {
			t.Fatalf("%s: not connected", name)
		}
		io.WriteString(c, "x")
		if got := read(t, c, make([]byte, 1)); got != "x" {
			t.Fatalf("%s: read %q", name, got)
		}
		c.Close()
		if all := s.Names(); len(all) > before != tc.names {
			t.Errorf("%s: the proxy was asked for the names %v", name, all[before:])
		}
	}
}

func read(t *testing.T, r io.Reader, b []byte) string {
	t.Helper()
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}
