package netpolicy_test

import (
	"testing"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

func TestMembersMayConnectUnlessARuleDenies(t *testing.T) {
	ceiling, err := netpolicy.Compile(netpolicy.Spec{Default: netpolicy.Public, Deny: []string{"*.forkd.internal:25"}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := netpolicy.CompileWithin(netpolicy.Spec{
		Deny:  []string{"db.forkd.internal:22", "*.forkd.internal:9000-9999/tcp", "192.0.0.0/24"},
		Allow: []string{"log.forkd.internal:9000"},
	}, netpolicy.Bounds{Ceiling: ceiling})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		proto netpolicy.Protocol
		port  uint16
		want  netpolicy.Verdict
	}{
		{"db.forkd.internal", netpolicy.TCP, 5432, netpolicy.Allowed},
		{"db.forkd.internal", netpolicy.TCP, 22, netpolicy.Denied},
		{"web.forkd.internal", netpolicy.TCP, 22, netpolicy.Allowed},
		{"web.forkd.internal", netpolicy.TCP, 9500, netpolicy.Denied},
		{"web.forkd.internal", netpolicy.UDP, 9500, netpolicy.Allowed},
		{"log.forkd.internal", netpolicy.TCP, 9000, netpolicy.Allowed}, // allow beats deny
		{"web.forkd.internal", netpolicy.TCP, 25, netpolicy.Denied},    // the operator's ceiling
	} {
		if d := p.JudgeMember(c.name, c.proto, c.port); d.Verdict != c.want {
			t.Errorf("%s:%d/%s: %+v", c.name, c.port, c.proto, d)
		}
	}
}
