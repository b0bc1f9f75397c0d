package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// If the file is moved, removed or replaced, the daemon stops writing to it.
func TestALogThatIsMovedIsOpenedAgain(t *testing.T) {
	for name, move := range map[string]func(path string) error{
		"moved":   func(path string) error { return os.Rename(path, path+".elsewhere") },
		"removed": os.Remove,
		"replaced": func(path string) error {
			if err := os.WriteFile(path+".new", nil, 0o600); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrial(t)
			l := tr.open()
			l.Add(Entry{Action: "sandbox.fork", Result: OK})
			for end := time.Now().Add(time.Minute); l.Stats().Written < 2 && time.Now().Before(end); {
				tr.tick <- time.Time{}
			}
			if err := move(tr.path); err != nil {
				t.Fatal(err)
			}
			l.Add(Entry{Action: "sandbox.kill", Result: OK})
			tr.closed(l)
			if got := actions(tr.entries(Query{})); !strings.Contains(got, ActionCut) || !strings.Contains(got, "sandbox.kill") {
				t.Errorf("the new file has %s", got)
			}
			if name == "moved" {
				if old, err := os.ReadFile(tr.path + ".elsewhere"); err != nil || !strings.Contains(string(old), "sandbox.fork") ||
					strings.Contains(string(old), "sandbox.kill") {
					t.Errorf("the old file has %s, %v", old, err)
				}
			}
		})
	}
}

func TestReopenLooksAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	writtenLog(t, path, func(l *Log) {
		l.Add(Entry{Action: "key.create", Result: OK})
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		l.Reopen()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			if st, err := os.Stat(path); err == nil && st.Size() > 0 {
				return
			}
			time.Sleep(time.Millisecond) // elapses: between two checks
		}
		t.Error("it was not opened again")
	})
}
