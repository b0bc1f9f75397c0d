package build

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The oldest uploads of an owner over the limit are removed. Uploads of other owners stay.
func TestUploadsOfAnOwnerAreBounded(t *testing.T) {
	s, _, err := OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	keep := func(owner string, i int, size int64, age time.Duration) {
		t.Helper()
		at := filepath.Join(s.filesDir(owner), fmt.Sprintf("%064x", i))
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{at + ".tar", at + ".json"} {
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Truncate(at+".tar", size); err != nil { // holes use no disk space
			t.Fatal(err)
		}
		if err := os.Chtimes(at+".json", now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	keep("quiet", 0, 1<<20, 5*time.Hour)
	for i := range 4 {
		keep("greedy", i, 3<<30, time.Duration(i)*time.Hour)
	}
	s.collectFiles(now)
	if n := s.HeldBytes("greedy"); n != 6<<30 {
		t.Errorf("%d bytes are kept of the greedy owner", n)
	}
	if n := s.HeldBytes("quiet"); n != 1<<20 {
		t.Errorf("%d bytes are kept of the quiet owner", n)
	}
}
