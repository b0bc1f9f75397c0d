package seal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// golden is a first key whose derived values are fixed: old seals must stay verifiable.
var golden = Key{1, 2, 3}

func TestTheDerivationIsFixed(t *testing.T) {
	got := fmt.Sprintln(golden.ID(), golden.Next().ID(), golden.MAC([]byte("m")))
	const want = "7c9c4e56799c0239 b17891a53b48a77c " +
		"9eb351c86e854de6c976f67c95a4e920009a6062480aff97744fd5d8db5184ab\n"
	if got != want {
		t.Errorf("derived %q, want %q", got, want)
	}
}

func TestTextsOfKeys(t *testing.T) {
	k := New()
	if back, err := Parse(" " + k.Text() + "\n"); err != nil || back != k {
		t.Errorf("%v, %v", back, err)
	}
	for _, print := range []string{fmt.Sprint(k), fmt.Sprintf("%+v %#v", k, k)} {
		if strings.Contains(print, k.Text()[20:40]) {
			t.Errorf("printed as %s", print)
		}
	}
	for _, bad := range []string{"", "forkd_seal_", "forkd_seal_zz", k.Text()[1:], k.Text() + "00", strings.ToUpper(k.Text())} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is a key", bad)
		}
	}
}

func started(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "k")
	if err := Create(path, filepath.Dir(path), golden); err != nil {
		t.Fatal(err)
	}
	return path
}

func opened(t *testing.T, path string) *State {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Each key is used once, also across openings, and an old one is in no file any more.
func TestKeysAdvanceAndAreErased(t *testing.T) {
	path := started(t)
	want := golden
	var old []Key
	for i := range 5 {
		s := opened(t, path)
		if s.Epoch() != uint64(i+1) || s.MAC([]byte("m")) != want.MAC([]byte("m")) || s.ID() != golden.ID() {
			t.Fatalf("opening %d: epoch %d of %s", i, s.Epoch(), s.ID())
		}
		if err := s.Advance(); err != nil {
			t.Fatal(err)
		}
		old = append(old, want)
		want = want.Next()
		s.Close()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range old {
			if bytes.Contains(b, k[:]) {
				t.Fatal("an old key is in the file")
			}
		}
	}
}

// A crash at any byte of an advance leaves the old key or the next one.
func TestACrashDuringAnAdvance(t *testing.T) {
	path := started(t)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before = append(before, make([]byte, 2*slotSize-len(before))...)
	s := opened(t, path)
	if err := s.Advance(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2*slotSize + 1 { // first the slot of epoch 2, which is the first in the file, then that of epoch 1
		torn := append(append([]byte{}, after[:n]...), before[n:]...)
		if err := os.WriteFile(path, torn, 0o600); err != nil {
			t.Fatal(err)
		}
		s := opened(t, path)
		want := uint64(1)
		if n >= slotSize {
			want = 2
		}
		if s.Epoch() != want {
			t.Fatalf("after %d bytes: epoch %d", n, s.Epoch())
		}
		s.Close()
		if b, _ := os.ReadFile(path); want == 2 && bytes.Contains(b, golden[:]) {
			t.Fatal("the old key was not erased")
		}
	}
}

func TestFilesOfKeys(t *testing.T) {
	path := started(t)
	if err := Create(path, filepath.Dir(path), golden); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second file: %v", err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	s := opened(t, path)
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "another daemon") {
		t.Errorf("a second daemon: %v", err)
	}
	if !s.Same(path) || s.Same(path+"x") {
		t.Error("it is not its own file")
	}
	s.Close()
	for _, content := range []string{"", "x", strings.Repeat("\xff", 2*slotSize)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); !errors.Is(err, ErrDamaged) {
			t.Errorf("%q: %v", content, err)
		}
	}
}

func FuzzState(f *testing.F) {
	path := filepath.Join(f.TempDir(), "seed")
	if err := Create(path, filepath.Dir(path), golden); err != nil {
		f.Fatal(err)
	}
	seed, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "k")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(path)
		if err != nil {
			return
		}
		defer s.Close()
		if s.Epoch() == 0 {
			t.Error("epoch 0")
		}
	})
}
