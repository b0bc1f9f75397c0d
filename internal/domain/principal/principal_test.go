package principal

import (
	"context"
	"encoding/json"
	"testing"
)

func TestAContextWithoutAPrincipalIsTheOperators(t *testing.T) {
	p := From(context.Background())
	if !p.Operator() || !p.May(All) || !p.Sees("anybody") || !p.Sees("") {
		t.Errorf("got %+v", p)
	}
}

func TestATenantSeesItsOwn(t *testing.T) {
	p := From(With(t.Context(), Principal{Name: "ci", KeyID: "k1", Tenant: "acme", Scopes: Read | Run}))
	if p.Operator() || !p.Sees("acme") || p.Sees("") || p.Sees("other") {
		t.Errorf("got %+v", p)
	}
	if !p.May(Read) || !p.May(Run) || p.May(Fork) || p.May(Read|Admin) {
		t.Errorf("scopes %s", p.Scopes)
	}
	keyOfTheOperator := Principal{KeyID: "k2", Scopes: Read}
	if !keyOfTheOperator.Sees("acme") || keyOfTheOperator.May(Fork) {
		t.Error("a key without a tenant sees everything, and does what its scopes say")
	}
}

func TestScopesAreReadAndWritten(t *testing.T) {
	s, err := ParseScopes([]string{"fork", "read", "fork"})
	if err != nil || s != Read|Fork || s.String() != "read,fork" {
		t.Errorf("got %v, %v", s, err)
	}
	b, err := json.Marshal(s)
	if err != nil || string(b) != `["read","fork"]` {
		t.Errorf("got %s, %v", b, err)
	}
	var back Scopes
	if err := json.Unmarshal(b, &back); err != nil || back != s {
		t.Errorf("got %v, %v", back, err)
	}
	for _, bad := range [][]string{nil, {"root"}, {"read", ""}, {"READ"}} {
		if _, err := ParseScopes(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
