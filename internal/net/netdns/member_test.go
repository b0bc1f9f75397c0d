package netdns_test

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/forkd/forkd/internal/net/netdns"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Names of members are answered with the policy none. All other names of forkd's zone do not exist, and the resolver
// has no upstream that could be asked.
func TestNamesOfMembersAreAnsweredHere(t *testing.T) {
	policy, err := netpolicy.Compile(netpolicy.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	db := netip.MustParseAddr("192.0.0.66")
	guest := netdns.Guest{Policy: policy, Facts: &netpolicy.Facts{}, Members: func(name string) (netip.Addr, bool) {
		return db, name == "db.forkd.internal"
	}}
	r := netdns.New(netdns.Config{})
	ask := func(g netdns.Guest, name string, of dnsmessage.Type) dnsmessage.Message {
		t.Helper()
		q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{
			{Name: dnsmessage.MustNewName(name), Type: of, Class: dnsmessage.ClassINET}}}
		b, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := r.Answer(t.Context(), g, b, false)
		var m dnsmessage.Message
		if err := m.Unpack(answer); err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := ask(guest, "DB.forkd.internal.", dnsmessage.TypeA)
	if len(m.Answers) != 1 || m.Answers[0].Header.TTL > 5 || m.Answers[0].Body.(*dnsmessage.AResource).A != db.As4() {
		t.Errorf("db is %+v", m)
	}
	if m := ask(guest, "db.forkd.internal.", dnsmessage.TypeAAAA); m.RCode != dnsmessage.RCodeSuccess || len(m.Answers) != 0 {
		t.Errorf("its IPv6 address is %+v", m)
	}
	outside := guest
	outside.Members = nil
	for name, g := range map[string]netdns.Guest{"db.forkd.internal.": outside, "web.forkd.internal.": guest} {
		if m := ask(g, name, dnsmessage.TypeA); m.RCode != dnsmessage.RCodeNameError {
			t.Errorf("%s is %+v", name, m)
		}
	}
	if names := guest.Facts.Names(nil, db, time.Now()); len(names) != 0 {
		t.Errorf("a member's address is a fact of %q", names)
	}
}
