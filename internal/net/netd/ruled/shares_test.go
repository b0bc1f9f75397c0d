package ruled_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/forkd/forkd/internal/net/netd"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netd/ruled"
	"github.com/forkd/forkd/internal/net/netdns"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netwire"
)

// tarpit never answers questions about hang.example.com. It answers others immediately.
type tarpit struct{ held atomic.Int64 }

func (p *tarpit) Ask(ctx context.Context, q dnsmessage.Question) (*dnsmessage.Message, error) {
	if strings.HasSuffix(q.Name.String(), ".hang.example.com.") {
		p.held.Add(1)
		defer p.held.Add(-1)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &dnsmessage.Message{Answers: []dnsmessage.Resource{{
		Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: dnsmessage.ClassINET, TTL: 60},
		Body:   &dnsmessage.AResource{A: [4]byte{93, 184, 216, 34}},
	}}}, nil
}

// TestOneGuestsQuestionsDoNotKeepAnothersFromAnAnswer lets a guest use up all its questions at an
// upstream that does not answer them. Guests of another tenant and of the same tenant still get
// answers.
func TestOneGuestsQuestionsDoNotKeepAnothersFromAnAnswer(t *testing.T) {
	const slots = 32 // for all guests; a guest may have 64 questions in progress
	up := &tarpit{}
	h := &host{t: t}
	rules := ruled.New(ruled.Config{
		Resolver: netdns.New(netdns.Config{Upstream: up, Inflight: slots, Timeout: time.Minute}),
	})
	var err error
	if h.s, err = netd.New(netd.Config{Rules: rules, Warn: func(err error) { t.Log(err) }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.s.Close)
	spec := netpolicy.Spec{Default: netpolicy.Public}
	evil := h.bind(spec, control.Binding{VM: "e", Sandbox: "e", Tenant: "evil"})
	c, _ := evil.ask(netwire.UDP, "192.0.0.1:53")
	for i := range 60 {
		q := dnsmessage.Message{Header: dnsmessage.Header{ID: uint16(i)}, Questions: []dnsmessage.Question{{
			Name: dnsmessage.MustNewName(fmt.Sprintf("n%d.hang.example.com.", i)), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
		}}}
		b, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		c.Write(append([]byte{netwire.PacketData}, b...))
	}
	for end := time.Now().Add(10 * time.Second); up.held.Load() == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	for name, b := range map[string]control.Binding{
		"another tenant":            {VM: "g", Sandbox: "g", Tenant: "good"},
		"the operator":              {VM: "o", Sandbox: "o"},
		"another of the same owner": {VM: "e2", Sandbox: "e2", Tenant: "evil"},
	} {
		addrs, code := h.bind(spec, b).resolve("quick.example.com", dnsmessage.TypeA)
		if code != dnsmessage.RCodeSuccess || len(addrs) != 1 || addrs[0] != "93.184.216.34" {
			t.Errorf("%s: got %v, %v", name, addrs, code)
		}
	}
	if held := up.held.Load(); held == 0 || held > slots/2 {
		t.Errorf("the guest holds %d of %d", held, slots)
	}
}

// TestOneTenantsConnectionsDoNotKeepAnothersFromTheirs does the same for connections.
func TestOneTenantsConnectionsDoNotKeepAnothersFromTheirs(t *testing.T) {
	h := &host{t: t}
	rules := ruled.New(ruled.Config{Resolver: netdns.New(netdns.Config{Upstream: &tarpit{}})})
	var err error
	if h.s, err = netd.New(netd.Config{Rules: rules, Warn: func(err error) { t.Log(err) }, Descriptors: 256}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.s.Close)
	spec := netpolicy.Spec{Default: netpolicy.Public}
	open := func(v *vm) bool {
		c, _ := v.ask(netwire.TCP, netip.AddrPortFrom(netip.MustParseAddr("192.0.0.1"), 80).String())
		return c != nil
	}
	all := 0
	for i := range 4 {
		v := h.bind(spec, control.Binding{VM: fmt.Sprint("e", i), Sandbox: fmt.Sprint("e", i), Tenant: "evil"})
		for n := 0; open(v); n++ {
			if all++; n > 128 {
				t.Fatal("a guest has more connections than there are descriptors for")
			}
		}
	}
	if all == 0 || all > 64 {
		t.Errorf("the tenant has %d connections of 128", all)
	}
	if !open(h.bind(spec, control.Binding{VM: "g", Sandbox: "g", Tenant: "good"})) {
		t.Error("another tenant has none")
	}
	lines, err := h.s.Refusals("e0")
	if err != nil || len(lines) == 0 || lines[0].Verdict != control.Limited {
		t.Errorf("got %+v, %v", lines, err)
	}
}

// TestOneTenantsFollowersDoNotKeepAnothersFromTheirs does the same for followers of the network
// log.
func TestOneTenantsFollowersDoNotKeepAnothersFromTheirs(t *testing.T) {
	h := &host{t: t}
	var err error
	if h.s, err = netd.New(netd.Config{Rules: ruled.New(ruled.Config{Resolver: netdns.New(netdns.Config{})})}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.s.Close)
	h.bind(netpolicy.Spec{}, control.Binding{VM: "e", Sandbox: "e", Tenant: "evil"})
	h.bind(netpolicy.Spec{}, control.Binding{VM: "g", Sandbox: "g", Tenant: "good"})
	follow := func(vm string) bool {
		stop, err := h.s.Subscribe(vm, func(control.Line) error { return nil })
		if err == nil {
			t.Cleanup(stop)
		}
		return err == nil
	}
	n := 0
	for n < 1000 && follow("e") {
		n++
	}
	if n == 0 || n > 32 || !follow("g") || !follow("") {
		t.Errorf("one follows %d times, and leaves none for others", n)
	}
}
