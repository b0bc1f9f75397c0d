package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/test/harness"
)

// The oracle, which other suites rely on, finds a change. The kill tests run without it except in a soak,
// because they make a hundred kills, each with a branch.
func TestTheOracleIsAwake(t *testing.T) {
	w := newWorld(t, func(d *harness.Daemon) { d.NoOracle = false })
	w.sub("a page of a branch is altered", func() { w.tampers("a page", w.alterMemory, "memory: 1 of 32768 pages differ") })
	w.sub("a block of a branch is altered", func() { w.tampers("a block", w.alterDisk, "disk 0: 1 of 1048576 pages differ") })
}

// tampers alters a capture after it is written and before it is a snapshot. The daemon's oracle
// must report the change, because other suites rely on it.
func (w *world) tampers(what string, alter func(source api.SandboxInfo) error, word string) {
	source := w.fork(parentTag)
	w.mark(source.ID)
	w.sh(source.ID, "busybox sync") // makes a block to alter
	w.arm(failpoint.BranchWritten)
	defer w.disarm(failpoint.BranchWritten)
	ended := make(chan error, 1)
	go func() {
		_, err := w.d.Client.Branch(context.Background(), source.ID, api.BranchRequest{Tag: newTag})
		ended <- err
	}()
	w.reached(failpoint.BranchWritten)
	if err := alter(source); err != nil {
		w.t.Fatal(err)
	}
	w.disarm(failpoint.BranchWritten)
	w.d.Mismatches++
	if err := <-ended; err == nil || !strings.Contains(err.Error(), sandbox.OracleMismatch) || !strings.Contains(err.Error(), word) {
		w.t.Errorf("with %s altered the branch says %v, want %q and %q", what, err, sandbox.OracleMismatch, word)
	}
	if n := len(w.d.Account().Mismatches); n != w.d.Mismatches {
		w.t.Errorf("the log has %d mismatches, want %d", n, w.d.Mismatches)
	}
	if _, err := w.d.Client.Snapshot(w.t.Context(), newTag); !client.IsNotFound(err) {
		w.t.Errorf("the snapshot is there: %v", err)
	}
	w.clean()
	w.nothingLeft()
}

// alterMemory changes a byte of the daemon's unnamed file with the captured memory.
func (w *world) alterMemory(source api.SandboxInfo) error {
	dir := fmt.Sprintf("/proc/%d/fd", w.d.PID())
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		name, _ := os.Readlink(path)
		st, err := os.Stat(path)
		if err == nil && strings.HasSuffix(name, "(deleted)") && st.Mode().IsRegular() && st.Size() == int64(source.MemoryMiB)<<20 {
			return alterFirst(path)
		}
	}
	return errors.New("the daemon has no file of the memory's size open")
}

// alterDisk changes a byte of the sandbox's frozen overlay.
func (w *world) alterDisk(source api.SandboxInfo) error {
	dir := w.d.VMDir(source.ID)
	return alterFirst(filepath.Join(w.d.Data, "own", filepath.Base(dir)+"-disk1"))
}

// alterFirst changes the first byte of a file's first data extent.
func alterFirst(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	at, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_DATA)
	if err != nil {
		return fmt.Errorf("find data in %s: %w", path, err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		return err
	}
	b[0] ^= 0xff
	_, err = f.WriteAt(b, at)
	return err
}
