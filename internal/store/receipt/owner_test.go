package receipt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// gone reports that no subject exists any more.
func gone(Kind, string) bool { return false }

// flushed returns a store with n receipts of each owner on disk, with the owners taking turns.
func flushed(t *testing.T, l Limits, owners map[string]int) (*Store, string) {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir, l)
	for i, left := 0, true; left; i++ {
		left = false
		for owner, n := range owners {
			if i < n {
				left = true
				s.Put(owner, OfSandbox, fmt.Sprint("sb-", owner, i), of(fmt.Sprint("sb-", owner, i)))
			}
		}
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	return s, dir
}

// Listing a tenant's receipts opens no files of other owners, which are damaged in this test.
func TestATenantsListReadsItsOwnFilesOnly(t *testing.T) {
	s, dir := flushed(t, Limits{}, map[string]int{"quiet": 2, "other": 50, "": 50})
	for _, f := range files(t, dir) {
		if !strings.Contains(f, "quiet") {
			if err := os.WriteFile(filepath.Join(dir, f), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := ids(t, s, Filter{Tenant: "quiet"}); got != "sb-quiet1 sb-quiet0" {
		t.Errorf("the tenant's are %q", got)
	}
	if got := ids(t, s, Filter{Tenant: "quiet", Limit: 1}); got != "sb-quiet1" {
		t.Errorf("the tenant's newest is %q", got)
	}
	if _, err := s.List(Filter{}); err == nil {
		t.Error("the damaged files are not reported to the operator")
	}
}

func TestOwnersShareThePlacesOfReceipts(t *testing.T) {
	for _, c := range []struct {
		owners, want map[string]int
	}{
		{map[string]int{"quiet": 5, "loud": 95}, map[string]int{"quiet": 5, "loud": 55}},
		{map[string]int{"quiet": 5, "loud": 95, "": 95}, map[string]int{"quiet": 5, "loud": 27, "": 27}},
		{map[string]int{"a": 20, "b": 20, "": 20}, map[string]int{"a": 20, "b": 20, "": 20}},
	} {
		s, _ := flushed(t, Limits{Count: 60}, c.owners)
		if err := s.Prune(time.Now(), gone); err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		list, err := s.List(Filter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			got[r.Owner]++
		}
		for owner, want := range c.want {
			if got[owner] != want {
				t.Errorf("of %v %q keeps %d receipts, want %d", c.owners, owner, got[owner], want)
			}
		}
	}
}

// If receipts cannot be written yet, the owner with the most loses its oldest.
func TestWaitingReceiptsAreShared(t *testing.T) {
	s := open(t, t.TempDir(), Limits{})
	for i := range 5 {
		s.Put("quiet", OfSandbox, fmt.Sprint("q", i), of("x"))
	}
	for i := range maxPending + 10 {
		s.Put("loud", OfSandbox, fmt.Sprint("l", i), of("x"))
	}
	if s.waiting["quiet"] != 5 || s.waiting["loud"] != maxPending-5 || s.lost != 15 || len(s.pending) != maxPending {
		t.Errorf("%v wait, %d are lost", s.waiting, s.lost)
	}
}

// Names of files of an earlier version lack the owner.
func TestNamesOfAnEarlierVersionGetTheirOwners(t *testing.T) {
	s, dir := flushed(t, Limits{}, map[string]int{"acme": 2, "": 1})
	for _, f := range files(t, dir) {
		p := strings.Split(f, ".")
		if err := os.Rename(filepath.Join(dir, f), filepath.Join(dir, strings.Join(append(p[:3], "json"), "."))); err != nil {
			t.Fatal(err)
		}
	}
	damaged := s.nextIDLocked() + ".sandbox.sb-x.json"
	if err := os.WriteFile(filepath.Join(dir, damaged), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Limits{})
	if got := ids(t, s, Filter{Tenant: "acme"}); got != "sb-acme1 sb-acme0" {
		t.Errorf("acme's are %q", got)
	}
	if list, err := s.List(Filter{}); err == nil || len(list) != 3 || !strings.Contains(err.Error(), damaged) {
		t.Errorf("all are %d, %v", len(list), err)
	}
}

func FuzzName(f *testing.F) {
	for _, s := range []string{"r0123456789abcdef01.sandbox.sb-1.acme.json", "r0123456789abcdef01.snapshot.py.-.json",
		"r0123456789abcdef01.sandbox.sb-1.json", "r0123456789abcdef01.sandbox.sb-1..json", "../x.json", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, file string) {
		n, ok := parseName(file)
		if ok && n.file() != file || ok && strings.Contains(file, "/") {
			t.Errorf("%q is parsed as %+v", file, n)
		}
	})
}
