package op

import (
	"reflect"
	"testing"

	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/store/snapshot"
)

func TestAChildInheritsThePolicyOfItsSnapshot(t *testing.T) {
	withSecret := netpolicy.Spec{Default: netpolicy.Deny, Allow: []string{"example.com"},
		Headers: []netpolicy.HeaderRule{{Host: "example.com", Secrets: map[string]string{"Authorization": "token"}}}}
	public := netpolicy.Spec{Default: netpolicy.Public}
	for _, c := range []struct {
		name        string
		of          *netpolicy.Spec
		m           snapshot.Manifest
		allow       int
		secrets     bool
		wantDefault netpolicy.Default
	}{
		{name: "of the same owner", m: snapshot.Manifest{Owner: "acme", Network: &withSecret}, allow: 1, secrets: true,
			wantDefault: netpolicy.Deny},
		{name: "of another owner, without its secrets", m: snapshot.Manifest{Owner: "other", Network: &withSecret}, allow: 1,
			wantDefault: netpolicy.Deny},
		{name: "unless the request has one", of: &public, m: snapshot.Manifest{Owner: "acme", Network: &withSecret},
			wantDefault: netpolicy.Public},
		{name: "and nothing of a snapshot without one", m: snapshot.Manifest{Owner: "acme"}, wantDefault: nothing.Default},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := asked(c.of, &c.m, "acme")
			if got.Default != c.wantDefault || len(got.Allow) != c.allow {
				t.Errorf("policy %+v, want the default %q and %d names", got, c.wantDefault, c.allow)
			}
			secrets := false
			for _, h := range got.Headers {
				secrets = secrets || len(h.Secrets) > 0
			}
			if secrets != c.secrets {
				t.Errorf("headers %+v, with references to secrets: %t, want %t", got.Headers, secrets, c.secrets)
			}
		})
	}
	if len(withSecret.Headers[0].Secrets) != 1 {
		t.Error("the snapshot's own policy has changed")
	}
}

func TestTheFirstPolicyThatIsGivenCounts(t *testing.T) {
	build, later := &netpolicy.Spec{Default: netpolicy.Public}, &netpolicy.Spec{Default: netpolicy.Deny}
	for _, c := range []struct {
		in   []*netpolicy.Spec
		want *netpolicy.Spec
	}{{nil, nil}, {[]*netpolicy.Spec{nil, nil}, nil}, {[]*netpolicy.Spec{build, later}, build},
		{[]*netpolicy.Spec{nil, later}, later}} {
		if got := either(c.in...); !reflect.DeepEqual(got, c.want) {
			t.Errorf("either(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}
