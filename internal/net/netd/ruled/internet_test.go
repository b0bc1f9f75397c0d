package ruled_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/net/netd"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netd/nettest"
	"github.com/forkd/forkd/internal/net/netd/ruled"
	"github.com/forkd/forkd/internal/net/netdns"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netproxy"
	"github.com/forkd/forkd/internal/net/netwire"
)

func TestMain(m *testing.M) { nettest.Main(m, (*testing.M).Run) }

// host is a host with forkd-net, connected to the bench's internet.
type host struct {
	t     *testing.T
	net   *nettest.Internet
	s     *netd.Server
	asked func() []string
	roots *x509.CertPool // used by the interceptor
	seed  []byte         // of its certificates
}

var zones = nettest.Zones{
	"example.com":        {netip.MustParseAddr("93.184.216.34")},
	"six.example.com":    {netip.MustParseAddr("2606:2800:220:1:248:1893:25c8:1946")},
	"other.example.net":  {netip.MustParseAddr("93.184.216.35")},
	"rebind.example.com": {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("169.254.169.254")},
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, net: nettest.New(t)}
	path, asked := h.net.DNS(t, zones)
	h.asked = asked
	floor, err := netpolicy.NewFloor(netpolicy.FloorConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	wait, err := ruled.FollowHost(ctx, floor, func(err error) { t.Log(err) })
	if err != nil {
		t.Fatal(err)
	}
	route := &netdns.IPv6Route{}
	resolver := netdns.New(netdns.Config{
		Upstream: &netdns.Client{Servers: netdns.OpenResolvConf(path).Servers}, HasIPv6: route.Has,
	})
	rules := ruled.New(ruled.Config{Floor: floor, Resolver: resolver, Denied: func(vm string, l control.Line) {
		h.s.NameDenied(vm, l)
	}})
	h.roots = x509.NewCertPool()
	h.s, err = netd.New(netd.Config{
		Rules: rules, Intercept: netproxy.NewInterceptor(h.roots, h.seed), Warn: func(err error) { t.Log(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.s.Close(); cancel(); wait() })
	return h
}

// vm is a VM's guest, through its wire.
type vm struct {
	*host
	wire *netwire.Conn
	id   uint32
	ca   string // trusted by the guest
}

func (h *host) bind(spec netpolicy.Spec, b control.Binding) *vm {
	h.t.Helper()
	ours, theirs, err := netwire.Pair()
	if err != nil {
		h.t.Fatal(err)
	}
	b.Spec, b.Handover = spec, true
	if b.VM == "" {
		b.VM = "a"
	}
	defer theirs.Close()
	fd, err := unix.FcntlInt(theirs.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	bound, err := h.s.Bind(b, fd)
	if err != nil {
		h.t.Fatal(err)
	}
	w, err := netwire.NewConn(ours)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { w.Close() })
	return &vm{host: h, wire: w, ca: bound.CA}
}

// ask opens a flow, or returns the reason of its refusal.
func (v *vm) ask(p netwire.Protocol, to string) (net.Conn, netwire.Reason) {
	v.t.Helper()
	far := netip.MustParseAddrPort(to)
	from := netip.MustParseAddrPort("192.0.0.2:40000")
	if far.Addr().Is6() {
		from = netip.MustParseAddrPort("[fd66:6f72:6b64::2]:40000")
	}
	v.id++
	m := netwire.Message{Kind: netwire.Open, ID: v.id, Flow: netwire.Flow{Protocol: p, Guest: from, Far: far}}
	if err := v.wire.Send(m); err != nil {
		v.t.Fatal(err)
	}
	m, f, err := v.wire.Receive(true)
	for err == nil && (m.Kind == netwire.Finished || m.Kind == netwire.Broken) { // about an earlier flow
		m, f, err = v.wire.Receive(true)
	}
	if err != nil || m.ID != v.id {
		v.t.Fatalf("answer %+v: %v", m, err)
	}
	if f == nil {
		return nil, m.Reason
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		v.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	v.t.Cleanup(func() { c.Close() })
	return c, 0
}

// resolve asks the gateway.
func (v *vm) resolve(name string, kind dnsmessage.Type) (addrs []string, code dnsmessage.RCode) {
	v.t.Helper()
	c, reason := v.ask(netwire.UDP, "192.0.0.1:53")
	if c == nil {
		v.t.Fatalf("the gateway refuses: %s", reason)
	}
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName(name + "."), Type: kind, Class: dnsmessage.ClassINET,
	}}}
	b, err := q.Pack()
	if err != nil {
		v.t.Fatal(err)
	}
	c.Write(append([]byte{netwire.PacketData}, b...))
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		v.t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(buf[1:n]); err != nil {
		v.t.Fatal(err)
	}
	for _, r := range m.Answers {
		switch body := r.Body.(type) {
		case *dnsmessage.AResource:
			addrs = append(addrs, netip.AddrFrom4(body.A).String())
		case *dnsmessage.AAAAResource:
			addrs = append(addrs, netip.AddrFrom16(body.AAAA).String())
		}
	}
	return addrs, m.RCode
}

func TestANameThatIsAllowedIsResolvedAndReached(t *testing.T) {
	h := newHost(t)
	h.net.Echo(t, "93.184.216.34:7000")
	h.net.Echo(t, "93.184.216.35:7000")
	v := h.bind(netpolicy.Spec{Allow: []string{"example.com"}}, control.Binding{})
	if _, reason := v.ask(netwire.TCP, "93.184.216.34:7000"); reason != netwire.Prohibited {
		t.Errorf("before the name is resolved: %s", reason)
	}
	if addrs, code := v.resolve("example.com", dnsmessage.TypeA); len(addrs) != 1 || code != 0 {
		t.Fatalf("example.com is %s, %s", addrs, code)
	}
	c, reason := v.ask(netwire.TCP, "93.184.216.34:7000")
	if c == nil {
		t.Fatalf("after it is: %s", reason)
	}
	io.WriteString(c, "hello")
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		t.Error(err)
	}
	flows, err := h.s.Flows("a")
	var found bool
	for _, f := range flows {
		found = found || f.Name == "example.com" && f.NameSource == "dns" && !f.Relayed && f.BytesIn == 5
	}
	if err != nil || !found {
		t.Errorf("flows %+v: %v", flows, err)
	}
	if _, reason := v.ask(netwire.TCP, "93.184.216.35:7000"); reason != netwire.Prohibited {
		t.Errorf("another address: %s", reason)
	}
	facts, err := h.s.Facts("a")
	if err != nil {
		t.Fatal(err)
	}
	clone := h.bind(netpolicy.Spec{Allow: []string{"example.com"}}, control.Binding{VM: "b", Facts: facts})
	if c, reason := clone.ask(netwire.TCP, "93.184.216.34:7000"); c == nil {
		t.Errorf("a clone: %s", reason)
	}
	if _, err := h.s.Update("a", netpolicy.Spec{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the policy has changed: %v", err)
	}
}

func TestANameThatIsDeniedNeverLeavesTheHost(t *testing.T) {
	h := newHost(t)
	v := h.bind(netpolicy.Spec{Allow: []string{"example.com"}}, control.Binding{})
	if addrs, code := v.resolve("secret.other.example.net", dnsmessage.TypeA); len(addrs) != 0 || code != dnsmessage.RCodeNameError {
		t.Errorf("it is %s, %s", addrs, code)
	}
	if asked := h.asked(); len(asked) != 0 {
		t.Errorf("asked were %q", asked)
	}
	if list, _ := h.s.Refusals("a"); len(list) != 1 || list[0].Name != "secret.other.example.net" {
		t.Errorf("refusals %+v", list)
	}
}

func TestThePublicReachesNothingOfTheFloor(t *testing.T) {
	h := newHost(t)
	v := h.bind(netpolicy.Spec{Default: netpolicy.Public}, control.Binding{})
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, to := range []string{
		"127.0.0.1:" + port, nettest.HostAddr + ":" + port, "169.254.169.254:80", "10.0.0.1:80", "100.64.0.1:80",
		"0.0.0.0:" + port, "[::1]:" + port, "[64:ff9b::7f00:1]:" + port, "[2002:7f00:1::]:" + port, "192.0.0.8:22",
	} {
		if _, reason := v.ask(netwire.TCP, to); reason != netwire.Prohibited {
			t.Errorf("%s: %s", to, reason)
		}
	}
	if addrs, _ := v.resolve("rebind.example.com", dnsmessage.TypeA); len(addrs) != 0 {
		t.Errorf("addresses of the floor: %s", addrs)
	}
}

func TestThePublicReachesTheInternet(t *testing.T) {
	h := newHost(t)
	h.net.Echo(t, "93.184.216.34:7000")
	h.net.Echo(t, "[2606:2800:220:1:248:1893:25c8:1946]:7000")
	v := h.bind(netpolicy.Spec{Default: netpolicy.Public}, control.Binding{})
	for _, to := range []string{"93.184.216.34:7000", "[2606:2800:220:1:248:1893:25c8:1946]:7000"} {
		for p, prefix := range map[netwire.Protocol]string{netwire.TCP: "", netwire.UDP: "\x00"} {
			c, reason := v.ask(p, to)
			if c == nil {
				t.Errorf("%s %s: %s", p, to, reason)
				continue
			}
			io.WriteString(c, prefix+"hello")
			buf := make([]byte, 100)
			if n, err := c.Read(buf); err != nil || string(buf[:n]) != prefix+"hello" {
				t.Errorf("%s %s: read %q: %v", p, to, buf[:n], err)
			}
		}
	}
	if _, reason := v.ask(netwire.TCP, "93.184.216.35:9"); reason != netwire.Reset {
		t.Errorf("a closed port: %s", reason)
	}
}

func TestAHostHeaderDecidesWhereNoFactDoes(t *testing.T) {
	h := newHost(t)
	h.net.HTTP(t, "93.184.216.34:80", false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "this is "+r.Host)
	}))
	v := h.bind(netpolicy.Spec{Allow: []string{"example.com"}}, control.Binding{})
	get := func(host string) string {
		c, reason := v.ask(netwire.TCP, "151.101.1.69:80") // not the address of example.com
		if c == nil {
			return reason.String()
		}
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
		b, _ := io.ReadAll(c)
		return string(b)
	}
	if got := get("example.com"); !strings.Contains(got, "this is example.com") {
		t.Errorf("example.com: %q", got)
	}
	for _, host := range []string{"other.example.net", "93.184.216.35", "rebind.example.com"} {
		if got := get(host); got != "" {
			t.Errorf("%s: %q", host, got)
		}
	}
}

// withSecret returns a client in a guest. The guest's policy sets a secret for a host, which the
// client expects at the given address.
func (h *host) withSecret(name, at string) *http.Client {
	v := h.bind(netpolicy.Spec{
		Allow:   []string{name},
		Headers: []netpolicy.HeaderRule{{Host: name, Headers: map[string]string{"Authorization": "Bearer s3cret"}}},
	}, control.Binding{Tag: "t"})
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM([]byte(v.ca)) {
		h.t.Fatalf("the CA is %q", v.ca)
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true, DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			c, reason := v.ask(netwire.TCP, at)
			if c == nil {
				return nil, errors.New(reason.String())
			}
			return c, nil
		},
	}}
}

// Programs keep the certificate in memory, so a clone from another snapshot must have the certificate of its source.
func TestATenantHasOneCertificate(t *testing.T) {
	h := newHost(t)
	spec := netpolicy.Spec{Allow: []string{"example.com"},
		Headers: []netpolicy.HeaderRule{{Host: "example.com", Headers: map[string]string{"X": "y"}}}}
	ca := func(vm, tenant, tag string) string {
		return h.bind(spec, control.Binding{VM: vm, Tenant: tenant, Tag: tag}).ca
	}
	source := ca("source", "a", "parent")
	if clone := ca("clone", "a", "branch"); source == "" || clone != source {
		t.Errorf("a sandbox trusts %q, its clone %q", source, clone)
	}
	if other, operator := ca("other", "b", "parent"), ca("operator", "", "parent"); other == source || operator == source {
		t.Error("another tenant or the operator has the same certificate")
	}
}

func TestASecretIsSetOnRequestsToItsHostAlone(t *testing.T) {
	h := newHost(t)
	server := h.net.HTTP(t, "93.184.216.34:443", true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "authorization: "+strings.Join(r.Header.Values("Authorization"), ","))
	}))
	h.roots.AddCert(server.Certificate())
	client := h.withSecret("example.com", "93.184.216.34:443")
	r, err := client.Get("https://example.com/")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if b, _ := io.ReadAll(r.Body); string(b) != "authorization: Bearer s3cret" || r.ProtoMajor != 2 {
		t.Errorf("%s: %s", r.Proto, b)
	}
	list, err := h.s.Flows("a")
	if err != nil || len(list) > 1 || len(list) == 1 && list[0].NameSource != "sni" {
		t.Errorf("flows %+v: %v", list, err)
	}
}

// The guest sees a reset, and can read why.
func TestAHostThatIsNotVerifiedIsRefusedWithTheReason(t *testing.T) {
	h := newHost(t)
	server := h.net.HTTP(t, "93.184.216.35:443", true, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("it was asked for something")
	}))
	h.roots.AddCert(server.Certificate()) // which is for other names
	client := h.withSecret("other.example.net", "93.184.216.35:443")
	if r, err := client.Get("https://other.example.net/"); err == nil {
		r.Body.Close()
		t.Errorf("it answers %s", r.Status)
	}
	refused, err := h.s.Refusals("a")
	if err != nil || len(refused) != 1 {
		t.Fatalf("refusals %+v: %v", refused, err)
	}
	l := refused[0]
	if l.Verdict != control.Refused || l.Name != "other.example.net" || !strings.Contains(l.Reason, "not other.example.net") {
		t.Errorf("the log says %+v", l)
	}
}

func TestEchoRequestsPassWhereTheKernelLetsThem(t *testing.T) {
	h := newHost(t)
	v := h.bind(netpolicy.Spec{Default: netpolicy.Public}, control.Binding{})
	// A new network namespace allows no pings at first (ping_group_range in ip-sysctl).
	if _, reason := v.ask(netwire.Echo, "93.184.216.34:0"); reason != netwire.Prohibited {
		t.Errorf("without the kernel's leave: %s", reason)
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 0"), 0); err != nil {
		t.Fatal(err)
	}
	c, reason := v.ask(netwire.Echo, "93.184.216.34:0")
	if c == nil {
		t.Fatalf("refused: %s", reason)
	}
	request := []byte{netwire.PacketData, 8, 0, 0, 0, 0x9c, 0x40, 0, 1, 'a', 'b'}
	c.Write([]byte{netwire.PacketData, 13, 0, 0, 0, 0, 0, 0, 1}) // another type is dropped
	c.Write(request)
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	if err != nil || n != len(request) || buf[1] != 0 || buf[5] != 0x9c || buf[6] != 0x40 || string(buf[9:n]) != "ab" {
		t.Errorf("read %x: %v", buf[:n], err)
	}
	sum := uint32(0)
	for i := 1; i < n; i += 2 {
		sum += uint32(buf[i])<<8 | uint32(buf[i+1])
	}
	if sum = sum&0xffff + sum>>16; sum != 0xffff {
		t.Errorf("the checksum of %x adds up to %#x", buf[1:n], sum)
	}
}
