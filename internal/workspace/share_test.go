package workspace

import (
	"fmt"
	"testing"
)

// A tenant with its share of the names leaves the rest to the other tenants.
func TestATenantKeepsToItsShareOfNames(t *testing.T) {
	b := &Book{all: map[string]record{}, busy: map[string]bool{}}
	for i := range maxOfTenant - 1 {
		b.all[fmt.Sprint("loud-", i)] = record{Owner: "loud"}
	}
	if err := b.claim("loud-last", "loud"); err != nil {
		t.Fatal(err)
	}
	if err := b.claim("loud-more", "loud"); err == nil {
		t.Error("a tenant has more than its share")
	}
	for _, owner := range []string{"quiet", ""} {
		if err := b.claim(owner+"-one", owner); err != nil {
			t.Errorf("%q: %v", owner, err)
		}
	}
}
