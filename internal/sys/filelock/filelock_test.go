package filelock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forkd/forkd/internal/sys/filelock"
)

// open opens the file once more, with a lock of its own.
func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	a, b := open(t, path), open(t, path)
	check(t, filelock.Try(a))
	check(t, filelock.Try(a)) // it has the lock already
	if err := filelock.Try(b); !errors.Is(err, filelock.ErrHeld) {
		t.Fatalf("the second has %v", err)
	}
	check(t, filelock.Unlock(a))
	check(t, filelock.Lock(b))
	check(t, b.Close())
	check(t, filelock.Try(a))
}

func TestSharedLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	a, b, c := open(t, path), open(t, path), open(t, path)
	check(t, filelock.Try(a))
	check(t, filelock.Share(a)) // from exclusive to shared
	check(t, filelock.Share(b))
	if err := filelock.Try(c); !errors.Is(err, filelock.ErrHeld) {
		t.Fatalf("an exclusive one beside two shared: %v", err)
	}
	check(t, a.Close())
	check(t, b.Close())
	check(t, filelock.Try(c))
}

func TestAFolder(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	check(t, err)
	defer dir.Close()
	check(t, filelock.Try(dir))
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "lock")
		a, b := open(t, path), open(t, path)
		check(t, filelock.Try(a))
		said := 0
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("long enough"))
		defer cancel()
		if err := filelock.Wait(ctx, b, func() { said++ }); err == nil || err.Error() != "long enough" {
			t.Fatalf("the waiting ended with %v", err)
		}
		time.AfterFunc(time.Second, func() { a.Close() })
		check(t, filelock.Wait(t.Context(), b, func() { said++ }))
		if said != 2 {
			t.Errorf("it reported %d times that it waits, want once for each", said)
		}
	})
}

func TestAClosedFile(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "lock"))
	f.Close()
	if err := filelock.Try(f); err == nil || errors.Is(err, filelock.ErrHeld) {
		t.Errorf("a closed file: %v", err)
	}
}
