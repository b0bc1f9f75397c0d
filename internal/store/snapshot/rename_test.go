package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/leaf/storeerr"
)

// A renamed snapshot has its content hash, digests and open files. A second one may take the old tag.
func TestARenamedSnapshot(t *testing.T) {
	s := open(t)
	write(t, s, "a", map[int64]string{0: "content"})
	must(t, s.Hash(t.Context(), "a", nil))
	before, err := s.Get("a")
	must(t, err)
	files, err := s.Open("a")
	must(t, err)
	defer files.Close()
	must(t, Rename(s, "a", "b"))
	write(t, s, "a", nil)
	for _, s := range []*Store{s, reopen(t, s.root())} {
		after, err := s.Get("b")
		if err != nil || after.ContentHash != before.ContentHash || after.Manifest.Tag != "b" || !s.HasDigests(after) {
			t.Fatalf("got %+v, %v", after, err)
		}
		if r, err := s.Verify(t.Context(), "b"); err != nil || len(r.Damaged) > 0 {
			t.Errorf("verified: %+v, %v", r, err)
		}
		other, err := s.Get("a")
		if err != nil || other.ContentHash == before.ContentHash {
			t.Errorf("the next snapshot of the old tag: %+v, %v", other, err)
		}
	}
	must(t, s.Delete("a"))
	if _, err := s.layers.GC(false); err != nil {
		t.Error(err)
	}
	if _, err := s.Open("b"); err != nil {
		t.Errorf("after the layers of the other were collected: %v", err)
	}
	if err := Rename(s, "a", "c"); !errors.Is(err, storeerr.ErrNotFound) {
		t.Errorf("a deleted one: %v", err)
	}
	write(t, s, "a", nil)
	if err := Rename(s, "a", "b"); !errors.Is(err, storeerr.ErrExists) {
		t.Errorf("to a taken tag: %v", err)
	}
}

// A folder that was moved by hand is still refused, also one with a damaged list of names.
func TestAFolderMovedByHand(t *testing.T) {
	for name, names := range map[string]string{
		"without a list": "", "for another": `{"version":1,"tags":["a","c"]}`, "not JSON": "b",
		"newer": `{"version":2,"tags":["a","b"]}`, "a path": `{"version":1,"tags":["../a","b"]}`,
		"large": strings.Repeat(" ", maxNamesBytes) + `{"version":1,"tags":["a","b"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			write(t, s, "a", nil)
			if names != "" {
				must(t, os.WriteFile(filepath.Join(s.Dir("a"), NamesFile), []byte(names), 0o600))
			}
			must(t, os.Rename(s.Dir("a"), s.Dir("b")))
			if _, err := s.Get("b"); !errors.Is(err, storeerr.ErrNotRestorable) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func FuzzNamesFile(f *testing.F) {
	f.Add([]byte(`{"version":1,"tags":["a","b"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		tags, err := DecodeNames(b)
		if err != nil {
			return
		}
		for _, tag := range tags {
			must(t, CheckTag(tag))
		}
	})
}
