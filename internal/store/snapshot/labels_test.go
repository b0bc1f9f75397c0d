package snapshot

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/leaf/storeerr"
)

func setTo(set map[string]string) func(map[string]string) (map[string]string, error) {
	return func(map[string]string) (map[string]string, error) { return set, nil }
}

func labelsOf(t *testing.T, s *Store, tag string) map[string]string {
	t.Helper()
	en, err := s.Get(tag)
	must(t, err)
	must(t, en.LabelsErr)
	return en.Labels
}

// Labels change neither the content hash nor the digests, and go with their snapshot.
func TestLabelsOfASnapshot(t *testing.T) {
	s := open(t)
	write(t, s, "a", nil)
	before, err := s.Get("a")
	must(t, err)
	want := map[string]string{"job": "7", "quotes": `<"&>`}
	must(t, s.SetLabels("a", setTo(want)))
	refused := errors.New("no change")
	err = s.SetLabels("a", func(now map[string]string) (map[string]string, error) {
		if !maps.Equal(now, want) {
			t.Errorf("they are %v", now)
		}
		return nil, refused
	})
	if err != refused {
		t.Errorf("got %v", err)
	}
	must(t, s.Hash(t.Context(), "a", nil))
	s = reopen(t, s.root())
	after, err := s.Get("a")
	if err != nil || after.ContentHash != before.ContentHash || !maps.Equal(after.Labels, want) {
		t.Errorf("got %v, %s, %v", after.Labels, after.ContentHash, err)
	}
	if r, err := s.Verify(t.Context(), "a"); err != nil || len(r.Damaged) > 0 {
		t.Errorf("verified: %+v, %v", r, err)
	}
	must(t, s.Delete("a"))
	if err := s.SetLabels("a", setTo(want)); !errors.Is(err, storeerr.ErrNotFound) {
		t.Errorf("of a deleted one: %v", err)
	}
	write(t, s, "a", nil)
	if got := labelsOf(t, s, "a"); got != nil {
		t.Errorf("the next snapshot of that tag has %v", got)
	}
}

func TestLabelsThatCannotBeWritten(t *testing.T) {
	s := open(t)
	write(t, s, "a", nil)
	must(t, s.SetLabels("a", setTo(map[string]string{"job": "7"})))
	t.Cleanup(failpoint.Set(func(step failpoint.Step) error {
		if strings.HasSuffix(string(step), "labels.write") {
			return unix.ENOSPC
		}
		return nil
	}))
	if err := s.SetLabels("a", setTo(nil)); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("on a full disk: %v", err)
	}
	if got := labelsOf(t, s, "a"); got["job"] != "7" {
		t.Errorf("they are now %v", got)
	}
}

// The rest of a snapshot with damaged labels is usable, and its labels can be set anew.
func TestDamagedLabels(t *testing.T) {
	s := open(t)
	write(t, s, "a", nil)
	path := filepath.Join(s.Dir("a"), LabelsFile)
	for name, content := range map[string]string{
		"empty":         "",
		"not JSON":      "labels",
		"newer":         `{"version":2,"labels":{}}`,
		"hostile":       `{"version":1,"labels":{"a":"\u001b[2J"}}`,
		"too many":      `{"version":1,"labels":{"` + strings.Repeat("x", labels.MaxKey+1) + `":""}}`,
		"a large file":  strings.Repeat(" ", maxLabelsBytes+1),
		"another shape": `{"version":1,"labels":["a"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			must(t, os.WriteFile(path, []byte(content), 0o600))
			en, err := s.Get("a")
			if err != nil || en.LabelsErr == nil || en.Labels != nil || len(en.LabelsErr.Error()) > 500 {
				t.Errorf("got %v, %v, %v", en.Labels, en.LabelsErr, err)
			}
			must(t, s.SetLabels("a", setTo(map[string]string{"job": "7"})))
			if got := labelsOf(t, s, "a"); got["job"] != "7" {
				t.Errorf("set anew: %v", got)
			}
		})
	}
	must(t, os.Remove(path))
	must(t, os.Symlink("/etc/hostname", path))
	if en, err := s.Get("a"); err != nil || en.LabelsErr == nil {
		t.Errorf("a link was followed: %v, %v", en.Labels, err)
	}
}

func FuzzLabelsFile(f *testing.F) {
	f.Add([]byte(`{"version":1,"labels":{"job":"7"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		set, err := DecodeLabels(b)
		if err == nil && labels.Check(set) != nil {
			t.Errorf("%q gives %v", b, set)
		}
	})
}
