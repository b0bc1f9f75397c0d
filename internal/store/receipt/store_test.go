package receipt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func open(t *testing.T, dir string, l Limits) *Store {
	t.Helper()
	s, err := Open(dir, l)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func of(id string) func() Receipt { return func() Receipt { return Receipt{Op: Fork, Sandbox: id} } }

// ids returns the subjects of a list.
func ids(t *testing.T, s *Store, f Filter) string {
	t.Helper()
	list, err := s.List(f)
	if err != nil {
		t.Error(err)
	}
	var out []string
	for _, r := range list {
		_, name := r.Subject()
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, en := range entries {
		out = append(out, en.Name())
	}
	return out
}

func TestReceiptsAreFoundAtOnceAndStay(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Limits{})
	for _, id := range []string{"a", "b", "c"} {
		s.Put("", OfSandbox, id, of(id))
	}
	s.Put("", OfSnapshot, "a", func() Receipt { return Receipt{Op: Branch, Sandbox: "x", Snapshot: "a"} })
	s.Put("", OfSandbox, "a", func() Receipt { return Receipt{Op: Rollback, Sandbox: "a"} })
	check := func() {
		t.Helper()
		for _, c := range []struct {
			filter Filter
			want   string
		}{
			{Filter{}, "a a c b a"},
			{Filter{Limit: 2}, "a a"},
			{Filter{Kind: OfSandbox, Of: "a"}, "a a"},
			{Filter{Kind: OfSnapshot}, "a"},
			{Filter{Op: Fork}, "c b a"},
			{Filter{Op: Fork, Limit: 1}, "c"},
			{Filter{Of: "none"}, ""},
		} {
			if got := ids(t, s, c.filter); got != c.want {
				t.Errorf("%+v finds %q, want %q", c.filter, got, c.want)
			}
		}
		for k, want := range map[Kind]int{OfSandbox: 3, OfSnapshot: 1} {
			if has, err := s.Subjects(k); err != nil || len(has) != want || !has["a"] {
				t.Errorf("subjects of kind %s: %v, %v", k, has, err)
			}
		}
	}
	check()
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	check()
	if got := files(t, dir); len(got) != 5 {
		t.Errorf("files: %q", got)
	}
	os.WriteFile(filepath.Join(dir, ".new-half.json"), []byte("{"), 0o600)
	s = open(t, dir, Limits{})
	check()
	if got := files(t, dir); len(got) != 5 {
		t.Errorf("after the next open: %q", got)
	}
}

func TestManyAreWrittenWhileOthersRead(t *testing.T) {
	s := open(t, t.TempDir(), Limits{})
	var wg sync.WaitGroup
	const n = 200
	for i := range n {
		wg.Go(func() {
			id := fmt.Sprintf("sb-%d", i)
			s.Put("", OfSandbox, id, of(id))
			if i%20 == 0 {
				if err := s.Flush(); err != nil {
					t.Error(err)
				}
			}
			if got := ids(t, s, Filter{Of: id}); got != id {
				t.Errorf("of %s there is %q", id, got)
			}
		})
	}
	wg.Wait()
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(Filter{}); err != nil || len(list) != n {
		t.Errorf("%d are listed, %v", len(list), err)
	}
}

func TestADamagedReceiptIsToldAndLeftOut(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Limits{})
	s.Put("", OfSandbox, "good", of("good"))
	s.Put("", OfSandbox, "bad", of("bad"))
	s.Put("", OfSandbox, "other", of("other"))
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, f := range files(t, dir) {
		path := filepath.Join(dir, f)
		switch {
		case strings.Contains(f, "bad"):
			os.WriteFile(path, []byte("{"), 0o600)
		case strings.Contains(f, "other"):
			os.Rename(path, strings.Replace(path, "other", "another", 1))
		}
	}
	list, err := s.List(Filter{})
	if len(list) != 1 || list[0].Sandbox != "good" || !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "bad") || !strings.Contains(err.Error(), "another") {
		t.Errorf("got %+v, %v", list, err)
	}
}

func TestWhatCannotBeWrittenWaits(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "receipts")
	s := open(t, dir, Limits{})
	s.Put("", OfSandbox, "a", of("a"))
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(); err == nil {
		t.Error("it was written nowhere")
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	s.Put("", OfSandbox, "bad name!", of("bad name!")) // can never be written
	if err := s.Flush(); err == nil {
		t.Error("a bad receipt was written")
	}
	if err := s.Flush(); err != nil {
		t.Error(err)
	}
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("files: %q", got)
	}
}

func TestOldReceiptsGo(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Limits{Count: 4, Age: time.Hour})
	for range keptOfEach + 4 {
		s.Put("", OfSandbox, "alive", of("alive"))
	}
	for i := range 6 {
		id := fmt.Sprint("dead", i)
		s.Put("", OfSandbox, id, of(id))
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(dir, "README"), nil, 0o600) // not a receipt
	exists := func(k Kind, of string) bool { return k == OfSandbox && of == "alive" }
	if err := s.Prune(time.Now(), exists); err != nil {
		t.Fatal(err)
	}
	if s.Crowded(time.Now()) || !s.Crowded(time.Now().Add(2*time.Hour)) {
		t.Error("it does not know when to do so again")
	}
	if got := ids(t, s, Filter{}); got != "dead5 dead4 dead3 dead2"+strings.Repeat(" alive", keptOfEach) {
		t.Errorf("by number: %s", got)
	}
	if err := s.Prune(time.Now().Add(2*time.Hour), exists); err != nil {
		t.Fatal(err)
	}
	if got := ids(t, s, Filter{}); got != strings.TrimSpace(strings.Repeat(" alive", keptOfEach)) {
		t.Errorf("by age: %s", got)
	}
	if got := files(t, dir); len(got) != keptOfEach+1 {
		t.Errorf("files: %q", got)
	}
}
