package vmctltest

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Limit is the time limit for fast operations. It is long to suit loaded machines.
const Limit = time.Minute

// Open opens a file until the test ends.
func Open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// File creates a file with the given content.
func File(t *testing.T, content string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return Open(t, path)
}

// Soon waits until a condition holds.
func Soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Limit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", Limit, what)
		}
	}
}
