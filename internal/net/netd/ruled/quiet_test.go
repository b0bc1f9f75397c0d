package ruled_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/forkd/forkd/internal/net/netd"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netd/ruled"
	"github.com/forkd/forkd/internal/net/netdns"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netwire"
)

// inside is an upstream that answers with names and addresses of the host's own network.
type inside struct{}

func (inside) Ask(_ context.Context, q dnsmessage.Question) (*dnsmessage.Message, error) {
	record := func(body dnsmessage.ResourceBody) (*dnsmessage.Message, error) {
		return &dnsmessage.Message{Answers: []dnsmessage.Resource{
			{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: dnsmessage.ClassINET, TTL: 60}, Body: body},
		}}, nil
	}
	switch q.Name.String() {
	case "private.example.com.":
		return record(&dnsmessage.AResource{A: [4]byte{10, 66, 77, 88}})
	case "alias.example.com.":
		return record(&dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("vault.metadata.google.internal.")})
	case "broken.example.com.":
		return &dnsmessage.Message{Header: dnsmessage.Header{RCode: dnsmessage.RCodeRefused}}, nil
	}
	return nil, &net.OpError{Op: "read", Net: "udp", Err: errors.New("i/o timeout"),
		Source: net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.66.77.1:40000")),
		Addr:   net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.66.77.53:53"))}
}

// internals must be hidden from guests. The operator finds them in the audit's file.
var internals = []string{"10.66.77.88", "vault.metadata.google.internal", "RCodeRefused", "10.66.77.53:53"}

// TestErrorsTellAGuestNothingOfTheHost resolves names with failing answers, over DNS and by a Host
// header, and reads all texts visible to the guest and its owner.
func TestErrorsTellAGuestNothingOfTheHost(t *testing.T) {
	audit := filepath.Join(t.TempDir(), "audit.log")
	h := &host{t: t}
	rules := ruled.New(ruled.Config{
		Resolver: netdns.New(netdns.Config{Upstream: inside{}}),
		Denied:   func(vm string, l control.Line) { h.s.NameDenied(vm, l) },
	})
	var err error
	if h.s, err = netd.New(netd.Config{Rules: rules, AuditPath: audit, Warn: func(err error) { t.Log(err) }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.s.Close)
	v := h.bind(netpolicy.Spec{Allow: []string{"*.example.com"}}, control.Binding{VM: "a"})
	var told strings.Builder
	var mu sync.Mutex
	var followed strings.Builder
	stop, err := h.s.Subscribe("a", func(l control.Line) error {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&followed, "%+v\n", l)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"private", "alias", "broken", "lost"} {
		fmt.Fprintf(&told, "%q\n", v.rawAnswer(name+".example.com"))
		if c, _ := v.ask(netwire.TCP, "93.184.216.34:80"); c != nil {
			fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s.example.com\r\n\r\n", name)
			io.Copy(&told, c)
		}
	}
	page, _ := v.ask(netwire.TCP, "192.0.0.1:80")
	io.WriteString(page, "GET /denied HTTP/1.0\r\nAccept: application/json\r\n\r\n")
	io.Copy(&told, page)
	lines, err := h.s.Refusals("a")
	if err != nil || len(lines) < 8 {
		t.Fatalf("refusals %+v: %v", lines, err)
	}
	fmt.Fprintf(&told, "%+v\n", lines)
	h.s.Close()
	stop()
	told.WriteString(followed.String())
	file, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range internals {
		if strings.Contains(told.String(), text) {
			t.Errorf("the guest or its owner is told %s:\n%s", text, told.String())
		}
		if !strings.Contains(string(file), text) {
			t.Errorf("the operator is not told %s:\n%s", text, file)
		}
	}
}

// rawAnswer asks the gateway with EDNS0, to get the extended error.
func (v *vm) rawAnswer(name string) []byte {
	v.t.Helper()
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 7, RecursionDesired: true})
	var h dnsmessage.ResourceHeader
	err := errors.Join(b.StartQuestions(), b.Question(dnsmessage.Question{
		Name: dnsmessage.MustNewName(name + "."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
	}), b.StartAdditionals(), h.SetEDNS0(1232, 0, false), b.OPTResource(h, dnsmessage.OPTResource{}))
	msg, err2 := b.Finish()
	c, _ := v.ask(netwire.UDP, "192.0.0.1:53")
	if err = errors.Join(err, err2); err != nil || c == nil {
		v.t.Fatal(err)
	}
	c.Write(append([]byte{netwire.PacketData}, msg...))
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		v.t.Fatal(err)
	}
	return buf[:n]
}
