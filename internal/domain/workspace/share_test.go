package workspace

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A tenant that has its share of the names leaves the rest to other tenants.
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

// Tenants that take as many names as they can leave names for later tenants.
func TestManyTenantsTogetherLeaveNamesToTheNext(t *testing.T) {
	b := &Book{all: map[string]record{}, busy: map[string]bool{}}
	fill := func(owner string, most int) (n int) {
		for ; n < most; n++ {
			name := fmt.Sprint(owner, "-", n)
			if b.claim(name, owner) != nil {
				break
			}
			b.release(name)
			b.all[name] = record{Owner: owner}
		}
		return n
	}
	for i := range 50 {
		fill(fmt.Sprint("loud", i), maxNames)
	}
	if n := len(b.all); n < maxNames/2 {
		t.Errorf("the loud tenants have %d names together", n)
	}
	for i := range 100 {
		if n := fill(fmt.Sprint("quiet", i), minOfTenant); n < minOfTenant {
			t.Fatalf("tenant %d can have %d names, want %d", i, n, minOfTenant)
		}
	}
	if n := fill("", 100); n < 100 {
		t.Errorf("the operator can have %d more names", n)
	}
}

// The limit on names also limits the file: a full list of the longest names can be written.
func TestAFullListFitsIntoItsFile(t *testing.T) {
	long, all := strings.Repeat("x", 64), map[string]record{}
	r := record{ID: long, Owner: strings.Repeat("x", 24), Sandbox: long, Source: long, State: long,
		MemoryLimitMiB: 1 << 30, Created: 1 << 40, Active: 1 << 40}
	for i := range maxNames {
		all[fmt.Sprintf("%064d", i)] = r
	}
	path := filepath.Join(t.TempDir(), "w")
	if err := writeFile(path, all); err != nil {
		t.Fatal(err)
	}
	if got, err := readFile(path); err != nil || len(got) != maxNames {
		t.Errorf("read %d names, %v", len(got), err)
	}
}
