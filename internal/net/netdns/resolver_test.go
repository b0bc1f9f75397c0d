package netdns

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// zone is an Upstream that knows only its records, and records its questions.
type zone struct {
	records []dnsmessage.Resource
	rcode   dnsmessage.RCode
	err     error
	asked   []string
}

func (z *zone) Ask(_ context.Context, q dnsmessage.Question) (*dnsmessage.Message, error) {
	z.asked = append(z.asked, q.Name.String())
	m := &dnsmessage.Message{Header: dnsmessage.Header{RCode: z.rcode}, Answers: z.records}
	return m, z.err
}

func name(s string) dnsmessage.Name { return dnsmessage.MustNewName(s) }

func a(owner, addr string, ttl uint32) dnsmessage.Resource {
	ip := netip.MustParseAddr(addr)
	h := dnsmessage.ResourceHeader{Name: name(owner), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: ttl}
	if ip.Is4() {
		return dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: ip.As4()}}
	}
	h.Type = dnsmessage.TypeAAAA
	return dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}}
}

func alias(owner, target string) dnsmessage.Resource {
	h := dnsmessage.ResourceHeader{Name: name(owner), Type: dnsmessage.TypeCNAME, Class: dnsmessage.ClassINET, TTL: 5}
	return dnsmessage.Resource{Header: h, Body: &dnsmessage.CNAMEResource{CNAME: name(target)}}
}

func ask(t *testing.T, n string, typ dnsmessage.Type, edns bool) []byte {
	t.Helper()
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 7, RecursionDesired: true})
	b.StartQuestions()
	b.Question(dnsmessage.Question{Name: name(n), Type: typ, Class: dnsmessage.ClassINET})
	if edns {
		b.StartAdditionals()
		var h dnsmessage.ResourceHeader
		h.SetEDNS0(4096, 0, false)
		b.OPTResource(h, dnsmessage.OPTResource{})
	}
	msg, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func compile(t *testing.T, spec netpolicy.Spec) *netpolicy.Policy {
	t.Helper()
	p, err := netpolicy.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func resolver(up Upstream) *Resolver {
	return New(Config{Upstream: up, Now: func() time.Time { return noon }, HasIPv6: func() bool { return true }})
}

func unpack(t *testing.T, msg []byte) *dnsmessage.Message {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(msg); err != nil {
		t.Fatalf("the answer %x: %v", msg, err)
	}
	return &m
}

// extended returns the extended error of an answer, or -1.
func extended(m *dnsmessage.Message) (code int, text string) {
	for _, r := range m.Additionals {
		if o, ok := r.Body.(*dnsmessage.OPTResource); ok && len(o.Options) > 0 {
			d := o.Options[0].Data
			return int(d[0])<<8 | int(d[1]), string(d[2:])
		}
	}
	return -1, ""
}

func TestAnswers(t *testing.T) {
	closed := netpolicy.Spec{Allow: []string{"example.com:443", "*.wild.test"}}
	open := netpolicy.Spec{Default: netpolicy.Public, Deny: []string{"evil.test"}}
	for _, c := range []struct {
		name    string
		spec    netpolicy.Spec
		q       string
		typ     dnsmessage.Type
		records []dnsmessage.Resource
		rcode   dnsmessage.RCode
		addrs   string
		asked   bool
		ede     int
	}{
		{"an allowed name", closed, "example.com.", dnsmessage.TypeA, []dnsmessage.Resource{a("example.com.", "93.184.216.34", 0)}, 0, "93.184.216.34", true, -1},
		{"one that is not does not leave the host", closed, "secret.evil.test.", dnsmessage.TypeA, nil, 3, "", false, blocked},
		{"nor as another type", closed, "secret.evil.test.", dnsmessage.TypeTXT, nil, 3, "", false, blocked},
		{"nor below an exact name", closed, "data.example.com.", dnsmessage.TypeA, nil, 3, "", false, blocked},
		{"HTTPS records are empty, and nobody is asked", closed, "example.com.", dnsmessage.TypeHTTPS, nil, 0, "", false, -1},
		{"ANY is empty", closed, "example.com.", dnsmessage.TypeALL, nil, 0, "", false, -1},
		{"the chain of aliases is followed", closed, "a.wild.test.", dnsmessage.TypeA, []dnsmessage.Resource{alias("a.wild.test.", "cdn.example.net."), a("cdn.example.net.", "93.184.216.34", 5)}, 0, "93.184.216.34", true, -1},
		{"private addresses are taken out", closed, "a.wild.test.", dnsmessage.TypeA, []dnsmessage.Resource{a("a.wild.test.", "10.0.0.1", 5), a("a.wild.test.", "9.9.9.9", 5)}, 0, "9.9.9.9", true, -1},
		{"if there are no others, it is said", closed, "a.wild.test.", dnsmessage.TypeA, []dnsmessage.Resource{a("a.wild.test.", "169.254.169.254", 5)}, 0, "", true, blocked},
		{"an alias to a private address is no way", closed, "a.wild.test.", dnsmessage.TypeA, []dnsmessage.Resource{alias("a.wild.test.", "x.test."), a("x.test.", "127.0.0.1", 5)}, 0, "", true, blocked},
		{"mapped addresses are IPv4", closed, "a.wild.test.", dnsmessage.TypeAAAA, []dnsmessage.Resource{a("a.wild.test.", "::ffff:10.0.0.1", 5), a("a.wild.test.", "64:ff9b::a00:1", 5)}, 0, "", true, blocked},
		{"records of other names are dropped", closed, "a.wild.test.", dnsmessage.TypeA, []dnsmessage.Resource{a("bank.test.", "6.6.6.6", 5)}, 0, "", true, -1},
		{"loops end", closed, "a.wild.test.", dnsmessage.TypeA, []dnsmessage.Resource{alias("a.wild.test.", "b.test."), alias("b.test.", "a.wild.test.")}, 2, "", true, otherError},
		{"public resolves", open, "example.org.", dnsmessage.TypeA, []dnsmessage.Resource{a("example.org.", "9.9.9.9", 5)}, 0, "9.9.9.9", true, -1},
		{"but what is denied", open, "evil.test.", dnsmessage.TypeA, nil, 3, "", false, blocked},
		{"nor by an alias", open, "good.test.", dnsmessage.TypeA, []dnsmessage.Resource{alias("good.test.", "evil.test."), a("evil.test.", "6.6.6.6", 5)}, 3, "", true, blocked},
		{"metadata has no name", open, "metadata.google.internal.", dnsmessage.TypeA, nil, 3, "", false, blocked},
		{"private addresses have no names", open, "1.0.0.10.in-addr.arpa.", dnsmessage.TypePTR, nil, 3, "", false, blocked},
		{"forkd's own zone stays here", open, "x.forkd.internal.", dnsmessage.TypeA, nil, 3, "", false, blocked},
		{"the root is empty", open, ".", dnsmessage.TypeNS, nil, 0, "", false, -1},
	} {
		up := &zone{records: c.records}
		g := Guest{Policy: compile(t, c.spec), Facts: &netpolicy.Facts{}}
		msg, e := resolver(up).Answer(context.Background(), g, ask(t, c.q, c.typ, true), false)
		m := unpack(t, msg)
		var addrs []string
		for _, r := range m.Answers {
			if addr, ok := address(r); ok {
				addrs = append(addrs, addr.String())
			}
		}
		ede, text := extended(m)
		if m.RCode != c.rcode || strings.Join(addrs, " ") != c.addrs || ede != c.ede || (len(up.asked) > 0) != c.asked {
			t.Errorf("%s: %s, addresses %q, extended error %d (%s), asked %q", c.name, m.RCode, addrs, ede, text, up.asked)
		}
		if m.ID != 7 || !m.Response || len(m.Questions) != 1 || m.Questions[0].Name.String() != c.q {
			t.Errorf("%s: the answer is to %+v", c.name, m.Questions)
		}
		for _, addr := range e.Addrs {
			if !g.Facts.Has(strings.TrimSuffix(c.q, "."), addr, noon.Add(netpolicy.MinTTL-time.Second)) {
				t.Errorf("%s: %s is no fact", c.name, addr)
			}
		}
		if len(e.Addrs) == 0 && g.Facts.Len() > 0 {
			t.Errorf("%s: there are %d facts", c.name, g.Facts.Len())
		}
	}
}

func TestAAAAIsEmptyWithoutARoute(t *testing.T) {
	up := &zone{records: []dnsmessage.Resource{a("example.org.", "2620:fe::fe", 5)}}
	r := New(Config{Upstream: up})
	msg, _ := r.Answer(context.Background(), Guest{Policy: compile(t, netpolicy.Spec{Default: "public"})},
		ask(t, "example.org.", dnsmessage.TypeAAAA, false), false)
	if m := unpack(t, msg); m.RCode != 0 || len(m.Answers) > 0 || len(up.asked) > 0 {
		t.Errorf("got %v, asked %q", m, up.asked)
	}
}

func TestTheHostsNameIsAnsweredHere(t *testing.T) {
	floor, err := netpolicy.NewFloor(netpolicy.FloorConfig{HostPorts: []netpolicy.PortRange{netpolicy.OnePort(8080)}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := netpolicy.CompileWithin(netpolicy.Spec{Allow: []string{netpolicy.HostName}}, netpolicy.Bounds{Floor: floor})
	if err != nil {
		t.Fatal(err)
	}
	up := &zone{}
	msg, e := resolver(up).Answer(context.Background(), Guest{Policy: p}, ask(t, "host.forkd.internal.", dnsmessage.TypeA, false), false)
	if m := unpack(t, msg); len(m.Answers) != 1 || len(up.asked) > 0 || !slices.Equal(e.Addrs, []netip.Addr{netpolicy.HostAddr}) {
		t.Errorf("got %v, asked %q", m, up.asked)
	}
}

type never struct{}

func (never) TakeDNS(time.Time) bool { return false }

func TestAGuestBeyondItsBudgetIsToldAtOnce(t *testing.T) {
	up := &zone{}
	g := Guest{Policy: compile(t, netpolicy.Spec{Default: "public"}), Budget: never{}}
	msg, e := resolver(up).Answer(context.Background(), g, ask(t, "example.org.", dnsmessage.TypeA, true), false)
	if m := unpack(t, msg); m.RCode != dnsmessage.RCodeServerFailure || e.Reason != netpolicy.LimitDNS || len(up.asked) > 0 {
		t.Errorf("got %v, %+v", m, e)
	}
}

func TestFailuresOfTheUpstreamAreNeverREFUSED(t *testing.T) {
	for _, up := range []*zone{{err: errors.New("timeout")}, {rcode: dnsmessage.RCodeRefused}, {rcode: dnsmessage.RCodeFormatError}} {
		msg, e := resolver(up).Answer(context.Background(), Guest{Policy: compile(t, netpolicy.Spec{Default: "public"})},
			ask(t, "example.org.", dnsmessage.TypeA, true), false)
		if m := unpack(t, msg); m.RCode != dnsmessage.RCodeServerFailure || e.Text == "" {
			t.Errorf("got %v, %+v", m, e)
		}
	}
}

func TestTTLsAreClamped(t *testing.T) {
	up := &zone{records: []dnsmessage.Resource{a("example.org.", "9.9.9.9", 1<<31-1)}}
	g := Guest{Policy: compile(t, netpolicy.Spec{Default: "public"}), Facts: &netpolicy.Facts{}}
	msg, _ := resolver(up).Answer(context.Background(), g, ask(t, "example.org.", dnsmessage.TypeA, false), false)
	if m := unpack(t, msg); m.Answers[0].Header.TTL != 3600 {
		t.Errorf("the guest keeps it for %d s", m.Answers[0].Header.TTL)
	}
	addr := netip.MustParseAddr("9.9.9.9")
	if !g.Facts.Has("example.org", addr, noon.Add(maxTTL)) || g.Facts.Has("example.org", addr, noon.Add(maxTTL+time.Minute)) {
		t.Error("the fact does not hold as long as the answer")
	}
}

func TestLargeAnswersAreCutOverUDP(t *testing.T) {
	up := &zone{}
	for i := range 200 {
		up.records = append(up.records, a("example.org.", netip.AddrFrom4([4]byte{9, 9, 9, byte(i)}).String(), 5))
	}
	g := Guest{Policy: compile(t, netpolicy.Spec{Default: "public"})}
	q := ask(t, "example.org.", dnsmessage.TypeA, true)
	msg, _ := resolver(up).Answer(context.Background(), g, q, false)
	if m := unpack(t, msg); !m.Truncated || len(m.Answers) > 0 || len(msg) > mostSize {
		t.Errorf("over UDP: %d bytes, truncated %t", len(msg), m.Truncated)
	}
	msg, _ = resolver(up).Answer(context.Background(), g, q, true)
	if m := unpack(t, msg); m.Truncated || len(m.Answers) != 200 {
		t.Errorf("over TCP: %d records, truncated %t", len(m.Answers), m.Truncated)
	}
}

func TestWhatIsNoQuery(t *testing.T) {
	r, g := resolver(&zone{}), Guest{Policy: compile(t, netpolicy.Spec{Default: "public"})}
	good := ask(t, "example.org.", dnsmessage.TypeA, false)
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	for _, c := range []struct {
		name  string
		msg   []byte
		rcode int // -1 for no answer
	}{
		{"nothing", nil, -1},
		{"half a header", good[:6], -1},
		{"an answer", change(2, 0x80), -1},
		{"an update", change(2, 0x28), 4},
		{"two questions in the header", change(5, 2), 1},
		{"no question", change(5, 0), 1},
		{"a name that points at itself", append(bytes.Clone(good[:12]), 0xc0, 12, 0, 1, 0, 1), 1},
		{"another class", change(len(good)-1, 3), 4},
	} {
		msg, _ := r.Answer(context.Background(), g, c.msg, false)
		got := -1
		if msg != nil {
			got = int(unpack(t, msg).RCode)
		}
		if got != c.rcode {
			t.Errorf("%s: got %d, want %d", c.name, got, c.rcode)
		}
	}
}

func TestLookupIsJudged(t *testing.T) {
	up := &zone{records: []dnsmessage.Resource{a("example.com.", "93.184.216.34", 5), a("example.com.", "2620:fe::fe", 5), a("bad.test.", "10.0.0.1", 5)}}
	var locked lockedUpstream
	locked.to = up
	g := Guest{Policy: compile(t, netpolicy.Spec{Allow: []string{"example.com", "bad.test", "none.test"}}), Facts: &netpolicy.Facts{}}
	r := resolver(&locked)
	addrs, err := r.Lookup(context.Background(), g, "example.com")
	if err != nil || len(addrs) != 2 || !addrs[0].Is4() || !g.Facts.Has("example.com", addrs[1], noon) {
		t.Errorf("got %v, %v", addrs, err)
	}
	var refusal *Blocked
	for _, n := range []string{"bad.test", "evil.test"} {
		if addrs, err := r.Lookup(context.Background(), g, n); !errors.As(err, &refusal) || refusal.Entry.Text == "" {
			t.Errorf("%s: got %v, %v", n, addrs, err)
		}
	}
	if addrs, err := r.Lookup(context.Background(), g, "none.test"); !errors.Is(err, ErrNoAddress) {
		t.Errorf("got %v, %v", addrs, err)
	}
}

// lockedUpstream handles one question at a time.
type lockedUpstream struct {
	busy atomic.Bool
	to   Upstream
}

func (l *lockedUpstream) Ask(ctx context.Context, q dnsmessage.Question) (*dnsmessage.Message, error) {
	for !l.busy.CompareAndSwap(false, true) {
		time.Sleep(time.Millisecond)
	}
	defer l.busy.Store(false)
	return l.to.Ask(ctx, q)
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01"), true)
	f.Add([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01\x01a\x00\x00\x01\x00\x01\x00\x00\x29\x10\x00\x00\x00\x00\x00\x00\x00"), false)
	p, err := netpolicy.Compile(netpolicy.Spec{Default: "public"})
	if err != nil {
		f.Fatal(err)
	}
	r := resolver(&zone{records: []dnsmessage.Resource{a("example.com.", "93.184.216.34", 5)}})
	f.Fuzz(func(t *testing.T, msg []byte, tcp bool) {
		out, _ := r.Answer(context.Background(), Guest{Policy: p}, msg, tcp)
		if out == nil {
			return
		}
		if m := unpack(t, out); !m.Response || m.RCode == dnsmessage.RCodeRefused {
			t.Errorf("the answer is %v", m)
		}
		if !tcp && len(out) > mostSize {
			t.Errorf("the answer has %d bytes", len(out))
		}
	})
}
