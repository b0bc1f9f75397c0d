package records

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, skipped, err := Open(dir)
	if err != nil || len(skipped) > 0 {
		t.Fatal(err, skipped)
	}
	return s
}

func TestRecordsOutliveTheDaemon(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "e2b")
	s := open(t, dir)
	no := false
	want := Record{ID: "sb-00000001-0001", Version: 1, Template: "base", EnvdToken: "secret", Metadata: map[string]string{"a": "b"},
		Started: time.Unix(1, 5).UTC(), End: time.Unix(2, 0).UTC(), Internet: &no, Network: []byte(`{"allowOut":["a"]}`)}
	if err := s.Put(want); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(Record{ID: "sb-00000001-0002", Template: "base"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("sb-00000001-0002"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("sb-00000001-0002"); err != nil {
		t.Errorf("a second time: %v", err)
	}
	want.Pause = true
	if _, err := s.Settle(want, false, nil); err != nil {
		t.Error(err)
	}
	got, ok := open(t, dir).Get(want.ID)
	if !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if n := len(open(t, dir).All()); n != 1 {
		t.Errorf("%d records", n)
	}
	st, err := os.Stat(s.path(want.ID))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("its file is %v, %v", st.Mode(), err)
	}
}

func TestARecordIsACopy(t *testing.T) {
	s := open(t, t.TempDir())
	_ = s.Put(Record{ID: "a", Template: "base", Metadata: map[string]string{"a": "b"}})
	r, _ := s.Get("a")
	r.Metadata["a"] = "c"
	if again, _ := s.Get("a"); again.Metadata["a"] != "b" {
		t.Error("a copy changed the store")
	}
}

func TestWhatIsNoRecordIsLeft(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a.json": "{", "b.json": `{"id":"c","template":"base"}`, "c.txt": "", "d.json": `{"id":"d"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, skipped, err := Open(dir)
	if err != nil || len(skipped) != 4 || len(s.All()) != 0 {
		t.Errorf("got %v, %v, %v", s.All(), skipped, err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 4 {
		t.Errorf("left are %v", names)
	}
	for _, id := range []string{"../x", "", "a/b", strings.Repeat("a", 65)} {
		if s.Put(Record{ID: id, Template: "base"}) == nil {
			t.Errorf("%q has a record", id)
		}
		_ = s.Remove(id)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"id":"a","template":"base","end":"2026-01-02T03:04:05Z"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := Decode(b); err == nil && !anID.MatchString(r.ID) {
			t.Errorf("%q has the id %q", b, r.ID)
		}
	})
}
