package procgroup

import "testing"

func TestParseStat(t *testing.T) {
	for _, tc := range []struct {
		name, line string
		want       stat
		ok         bool
	}{
		{"a plain name", "12 (sh) S 3 12 11 0 -1", stat{12, 3, 11}, true},
		{"a name with parentheses and spaces", "12 (a) R 9 (b)) S 3 12 11 0", stat{12, 3, 11}, true},
		{"cut short", "12 (sh) S 3", stat{}, false},
		{"no name", "12 S 3 12 11", stat{}, false},
		{"nothing", "", stat{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, ok := parseStat([]byte(tc.line)); got != tc.want || ok != tc.ok {
				t.Errorf("got %v, %v", got, ok)
			}
		})
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (sh) S 3 12 11 0 -1"))
	f.Add([]byte(")("))
	f.Fuzz(func(_ *testing.T, b []byte) { parseStat(b) })
}

func TestWithoutControlGroups(t *testing.T) {
	g := Open(t.TempDir(), "forkd")
	if g.Confined() {
		t.Fatal("an ordinary folder was taken for a cgroup file system")
	}
	one, err := g.New()
	if one != nil || err != nil {
		t.Errorf("got %v, %v", one, err)
	}
	one.Release()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}
