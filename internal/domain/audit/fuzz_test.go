package audit

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Any file is read, verified and appended to without a panic, and the appended lines can be read.
func FuzzFile(f *testing.F) {
	for _, name := range []string{"audit.v1.log", "audit.v1.log" + headSuffix} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, []byte(nil))
		f.Add(b[:len(b)/2], b)
	}
	f.Add([]byte("{}\n"), []byte(`{"seq":18446744073709551615,"hash":"`+Zero+`"}`))
	f.Fuzz(func(t *testing.T, log, head []byte) {
		path := filepath.Join(t.TempDir(), "audit.log")
		if err := os.WriteFile(path, log, 0o600); err != nil {
			t.Fatal(err)
		}
		if len(head) > 0 {
			if err := os.WriteFile(path+headSuffix, head, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Verify(context.Background(), path); err != nil {
			t.Fatal(err)
		}
		l, err := openChain(Config{Path: path, tick: make(chan time.Time)})
		if err != nil {
			return // it would have to move a file aside, and cannot
		}
		l.Add(Entry{Action: "fuzz", Result: OK})
		if err := l.Close(10 * time.Second); err != nil {
			t.Fatal(err)
		}
		found := false
		err = Read(context.Background(), path, Query{Last: 5}, func(_ []byte, e Entry) error {
			found = found || e.Action == "fuzz"
			return nil
		})
		if err != nil || !found {
			t.Errorf("what was written on is not there: %v", err)
		}
	})
}
