package tempdir_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/sys/tempdir"
)

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestASweepTakesOnlyFoldersWithoutAProcess(t *testing.T) {
	parent := t.TempDir()
	used, err := tempdir.Make(parent, ".x-")
	if err != nil {
		t.Fatal(err)
	}
	dead, err := tempdir.Make(parent, ".x-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dead.Path, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dead.Release() // as the end of its process does
	other := filepath.Join(parent, "other")
	link := filepath.Join(parent, ".x-link")
	if err := errors.Join(os.Mkdir(other, 0o700), os.Symlink(other, link)); err != nil {
		t.Fatal(err)
	}
	if err := tempdir.Sweep(parent, ".x-", tempdir.RemoveTree); err != nil {
		t.Fatal(err)
	}
	if !exists(used.Path) || exists(dead.Path) || !exists(other) || !exists(link) {
		t.Errorf("used %t, dead %t, other %t, link %t", exists(used.Path), exists(dead.Path), exists(other), exists(link))
	}
	used.Remove()
	if exists(used.Path) {
		t.Error("the folder stays after Remove")
	}
}

// A process that was killed with its parent may write for a moment.
func TestATreeIsRemovedWhileItsWritersDie(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
			_ = os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700)
			_ = os.WriteFile(filepath.Join(dir, "a", "b", "c"), nil, 0o600)
		}
	}()
	time.Sleep(20 * time.Millisecond) // elapses: the writer is at work
	if err := tempdir.RemoveTree(dir); err != nil {
		t.Error(err)
	}
	<-ended
}
