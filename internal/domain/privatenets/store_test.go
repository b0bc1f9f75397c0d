package privatenets

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func join(network, alias string) sandbox.NetJoin {
	return sandbox.NetJoin{Network: network, Alias: alias}
}

func TestNetworksAndMembersComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "networks.json")
	s := open(t, path)
	made, err := s.Create("acme", "shop")
	if err != nil {
		t.Fatal(err)
	}
	as, err := s.Join("acme", join("shop", "db"), []string{"sb-1"})
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if got, err := s.Get("acme", "shop"); err != nil || got.ID != made.ID || len(got.Members) != 0 {
		t.Fatalf("after a restart: %+v, %v", got, err)
	}
	s.Adopt("acme", "sb-1", as["sb-1"])
	got, _ := s.Get("acme", "shop")
	if len(got.Members) != 1 || got.Members[0] != (Member{"sb-1", "db", as["sb-1"].Addr}) {
		t.Errorf("adopted: %+v", got)
	}
	if err := s.Remove("acme", "shop"); !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), "sb-1") {
		t.Errorf("removed with a member: %v", err)
	}
	s.Leave("sb-1")
	s.Leave("sb-none")
	if err := s.Remove("acme", "shop"); err != nil {
		t.Error(err)
	}
	again, _ := s.Create("acme", "shop")
	s.Adopt("acme", "sb-1", as["sb-1"])
	if got, _ := s.Get("acme", "shop"); again.ID == made.ID || len(got.Members) != 0 {
		t.Errorf("a member of the removed network is in the new one: %+v", got)
	}
}

func TestWhatAStoreRefuses(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "networks.json"))
	if _, err := s.Create("acme", "shop"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Join("acme", join("shop", "db"), []string{"sb-1"}); err != nil {
		t.Fatal(err)
	}
	var many []string
	for i := range MaxMembers {
		many = append(many, fmt.Sprintf("sb-%d", i+10))
	}
	joined := func(owner string, j sandbox.NetJoin, ids ...string) error {
		_, err := s.Join(owner, j, ids)
		return err
	}
	made := func(owner, name string) error { _, err := s.Create(owner, name); return err }
	for name, c := range map[string]struct {
		got  error
		want error
		text string
	}{
		"a taken name":               {made("acme", "shop"), sandbox.ErrConflict, "shop"},
		"a bad name":                 {made("acme", "../x"), sandbox.ErrInvalid, "../x"},
		"a network of another":       {joined("evil", join("shop", "x"), "sb-2"), sandbox.ErrNotFound, "shop"},
		"the operator's view":        {joined("", join("shop", "x"), "sb-2"), sandbox.ErrNotFound, "shop"},
		"a taken alias":              {joined("acme", join("shop", "db"), "sb-2"), sandbox.ErrConflict, "sb-1"},
		"an alias for two":           {joined("acme", join("shop", "x"), "sb-2", "sb-3"), sandbox.ErrInvalid, "x is for one"},
		"an alias with a dot":        {joined("acme", join("shop", "a.b"), "sb-2"), sandbox.ErrInvalid, "a.b"},
		"an alias in capitals":       {joined("acme", join("shop", "DB"), "sb-2"), sandbox.ErrInvalid, "DB"},
		"the host's name":            {joined("acme", join("shop", "host"), "sb-2"), sandbox.ErrInvalid, "host"},
		"one member too many":        {joined("acme", join("shop", ""), many...), sandbox.ErrQuota, "33 members"},
		"removal of another's":       {s.Remove("evil", "shop"), sandbox.ErrNotFound, "shop"},
		"removal of an unknown name": {s.Remove("acme", "none"), sandbox.ErrNotFound, "none"},
	} {
		if !errors.Is(c.got, c.want) || !strings.Contains(c.got.Error(), c.text) {
			t.Errorf("%s: %v", name, c.got)
		}
	}
	for i := 1; i < MaxPerOwner; i++ {
		if err := made("acme", fmt.Sprint("n", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := made("acme", "more"); !errors.Is(err, sandbox.ErrQuota) {
		t.Errorf("one network too many: %v", err)
	}
	if err := made("other", "shop"); err != nil {
		t.Errorf("another tenant's limit counts: %v", err)
	}
}

func TestAddressesAreNotReusedAtOnce(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "networks.json"))
	if _, err := s.Create("", "n"); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for i := range 200 {
		id := fmt.Sprint("sb-", i)
		as, err := s.Join("", join("n", ""), []string{id})
		if err != nil {
			t.Fatal(err)
		}
		a := as[id].Addr.String()
		if before, ok := seen[a]; ok && i-before < 40 {
			t.Fatalf("%s is given again after %d members", a, i-before)
		}
		seen[a] = i
		s.Leave(id)
	}
	if seen["192.0.0.64"]+seen["192.0.0.127"] != 0 {
		t.Error("the first or the last address of the block is given")
	}
}

func TestAFileOfAnotherVersionIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "networks.json")
	for _, text := range []string{`{"version":2}`, `{`, ``} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(path, time.Now); err == nil {
			t.Errorf("%q is read as %+v", text, s.List(""))
		}
	}
}

func TestAFullDiskLosesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	s := open(t, filepath.Join(dir, "networks.json")) // its directory is missing: each write fails
	if _, err := s.Create("", "n"); err == nil || len(s.List("")) != 0 {
		t.Errorf("a network that is not in the file is listed: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create("", "n"); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("", "n"); err == nil || len(s.List("")) != 1 {
		t.Errorf("a network that is still in the file is not listed: %v", err)
	}
}
