package keys

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/principal"
)

var update = flag.Bool("update", false, "write the golden files anew")

// clock is a time set by the test.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func newClock() *clock { return &clock{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func open(t testing.TB, path string, c *clock) *Store {
	t.Helper()
	s, err := Open(Config{Path: path, Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newStore(t testing.TB) (*Store, string, *clock) {
	c, path := newClock(), filepath.Join(t.TempDir(), "keys.json")
	return open(t, path, c), path, c
}

func spec() Spec { return Spec{Name: "ci", Tenant: "acme", Scopes: principal.Read | principal.Run} }

func create(t testing.TB, s *Store, spec Spec) (Key, string) {
	t.Helper()
	k, text, err := s.Create(spec)
	if err != nil || !Looks(text) {
		t.Fatalf("text of %d bytes, %v", len(text), err)
	}
	return k, text
}

func found(s *Store, text string) bool {
	_, ok := s.Find(text)
	return ok
}

func TestAKeyIsFoundByItsTextAndKeptWithoutIt(t *testing.T) {
	s, path, c := newStore(t)
	k, text := create(t, s, spec())
	got, ok := s.Find(text)
	if !ok || got.ID != k.ID || got.Principal() != (principal.Principal{Name: "ci", KeyID: k.ID, Tenant: "acme", Scopes: principal.Read | principal.Run}) {
		t.Fatalf("found %+v, %t", got, ok)
	}
	b, err := os.ReadFile(path)
	if err != nil || bytes.Contains(b, []byte(text[len(Prefix):])) {
		t.Errorf("the file has the text, or %v", err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	for _, wrong := range []string{"", text[:len(text)-1], text + "0", "E2B_" + text[4:], strings.ToUpper(text), Prefix + strings.Repeat("0", 40), " " + text} {
		if found(s, wrong) {
			t.Errorf("%q opens", wrong)
		}
	}
	again := open(t, path, c)
	if got, ok := again.Find(text); !ok || got.Name != "ci" {
		t.Errorf("the next daemon finds %+v, %t", got, ok)
	}
}

func TestAKeyThatEnds(t *testing.T) {
	s, path, c := newStore(t)
	sp := spec()
	sp.Expires = c.now.Add(time.Hour)
	short, shortText := create(t, s, sp)
	sp = spec()
	sp.Name = "other"
	gone, goneText := create(t, s, sp)
	if _, err := s.Revoke(gone.ID); err != nil || found(s, goneText) {
		t.Errorf("revoked: %v, found %t", err, found(s, goneText))
	}
	if _, err := s.Revoke(gone.ID); err != nil {
		t.Errorf("revoked twice: %v", err)
	}
	if _, _, err := s.Rotate(gone.ID, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("a revoked key was given another text: %v", err)
	}
	c.now = c.now.Add(time.Hour)
	if found(s, shortText) || found(open(t, path, c), goneText) {
		t.Error("an expired or revoked key opens")
	}
	if k, err := s.Get(short.ID); err != nil || k.Dead(c.now) != "expired" {
		t.Errorf("%+v, %v", k, err)
	}
	c.now = c.now.Add(keepDead + time.Hour)
	create(t, s, spec()) // its name is free again, and keys that died long ago are removed
	if l := s.List(); len(l) != 1 {
		t.Errorf("listed: %+v", l)
	}
}

func TestRotation(t *testing.T) {
	s, path, c := newStore(t)
	k, first := create(t, s, spec())
	_, second, err := s.Rotate(k.ID, time.Minute)
	if err != nil || !found(s, first) || !found(s, second) {
		t.Fatalf("within the grace: %v", err)
	}
	s = open(t, path, c)
	c.now = c.now.Add(time.Minute)
	if found(s, first) || !found(s, second) {
		t.Error("after the grace")
	}
	_, third, err := s.Rotate(k.ID, 0)
	if err != nil || found(s, second) || !found(s, third) {
		t.Errorf("without grace: %v", err)
	}
}

func TestKeysThatCannotBe(t *testing.T) {
	s, _, c := newStore(t)
	create(t, s, spec())
	for name, change := range map[string]func(*Spec){
		"no name":          func(s *Spec) { s.Name = "" },
		"a name of others": func(s *Spec) { s.Name = "a/b" },
		"a tenant":         func(s *Spec) { s.Tenant = "a-b" },
		"a large tenant":   func(s *Spec) { s.Tenant = strings.Repeat("a", 25) },
		"no scopes":        func(s *Spec) { s.Scopes = 0 },
		"unknown scopes":   func(s *Spec) { s.Scopes = 1 << 6 },
		"a negative quota": func(s *Spec) { s.Quotas.Sandboxes = -1 },
		"over already":     func(s *Spec) { s.Expires = c.now },
		"an operator's key with quotas": func(s *Spec) {
			s.Tenant, s.Quotas.Sandboxes = "", 1
		},
	} {
		sp := spec()
		sp.Name = "another"
		change(&sp)
		if _, _, err := s.Create(sp); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := s.Create(spec()); !errors.Is(err, ErrTaken) {
		t.Errorf("the same name: %v", err)
	}
	if _, err := s.Revoke("k000000000000"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a key that is not there: %v", err)
	}
}

func TestTheLastUseIsCoarseAndWritten(t *testing.T) {
	s, path, c := newStore(t)
	k, text := create(t, s, spec())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	found(s, text)
	stop()
	<-ended
	if got, _ := open(t, path, c).Get(k.ID); !got.LastUsed.Equal(c.now.Truncate(time.Hour)) {
		// Run may have started after the use. Then the next change writes it.
		if _, _, err := s.Rotate(k.ID, 0); err != nil {
			t.Fatal(err)
		}
		if got, _ := open(t, path, c).Get(k.ID); !got.LastUsed.Equal(c.now.Truncate(time.Hour)) {
			t.Errorf("last used %s", got.LastUsed)
		}
	}
}

func TestTheRateOfAKey(t *testing.T) {
	s, _, c := newStore(t)
	sp := spec()
	sp.Quotas.RequestsPerSecond = 2
	k, _ := create(t, s, sp)
	for i, want := range []bool{true, true, false} {
		if wait, ok := s.Allow(k.ID); ok != want || !ok && wait <= 0 {
			t.Errorf("request %d: %t, %s", i+1, ok, wait)
		}
	}
	c.now = c.now.Add(time.Second)
	if _, ok := s.Allow(k.ID); !ok {
		t.Error("a second later")
	}
}

func TestAFileThatOthersCouldHaveWrittenIsRefused(t *testing.T) {
	s, path, c := newStore(t)
	create(t, s, spec())
	for name, damage := range map[string]func() error{
		"readable": func() error { return os.Chmod(path, 0o644) },
		"a link": func() error {
			if err := os.Rename(path, path+".else"); err != nil {
				return err
			}
			return os.Symlink(path+".else", path)
		},
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Config{Path: path, Now: c.Now}); err == nil {
			t.Errorf("%s: it was read", name)
		}
	}
}

// goldenStore has one key of each kind.
func goldenStore(t *testing.T) *Store {
	s, err := Open(Config{Path: filepath.Join(t.TempDir(), "keys.json"), Now: newClock().Now, Random: bytes.NewReader(bytes.Repeat([]byte{1, 2, 3, 5, 7, 11, 13}, 30))})
	if err != nil {
		t.Fatal(err)
	}
	full := Spec{Name: "ci", Tenant: "acme", Scopes: principal.All &^ principal.Layers, Expires: newClock().now.Add(24 * time.Hour),
		Quotas:    Quotas{Sandboxes: 50, MemoryMiB: 8192, ForksPerMinute: 300, DiskMiB: 10240, RequestsPerSecond: 20},
		HostPorts: []string{"8080", "9000-9100"}}
	k, text := create(t, s, full)
	found(s, text)
	if _, _, err := s.Rotate(k.ID, time.Hour); err != nil {
		t.Fatal(err)
	}
	own, _ := create(t, s, Spec{Name: "look", Scopes: principal.Read})
	if _, err := s.Revoke(own.ID); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestGoldenFile(t *testing.T) {
	const path = "testdata/keys-v1.json"
	b, err := encode(goldenStore(t).all)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(b, want) {
		t.Fatalf("the format changed (%v): raise Format or write %s anew with -update\n%s", err, path, b)
	}
	all, err := decode(want)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d keys, %v", len(all), err)
	}
	if back, err := encode(all); err != nil || !bytes.Equal(back, want) {
		t.Errorf("read and written again it is %s, %v", back, err)
	}
}

func FuzzDecode(f *testing.F) {
	if b, err := os.ReadFile("testdata/keys-v1.json"); err == nil {
		f.Add(b)
	}
	f.Add([]byte(`{"format":1,"keys":[{"id":"k000000000000","name":"a","scopes":["read"],"sha256":"00"}]}`))
	f.Add([]byte(`{"format":1,"keys":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := decode(b)
		if err != nil {
			return
		}
		out, err := encode(all)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(out); err != nil {
			t.Errorf("what was written cannot be read: %v", err)
		}
	})
}

func BenchmarkFind(b *testing.B) {
	s, _, _ := newStore(b)
	_, text := create(b, s, spec())
	for b.Loop() {
		if !found(s, text) {
			b.Fatal("not found")
		}
	}
}
