package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"golang.org/x/sys/unix"
)

// keep makes the VMM keep files open that it should close.
func (f *fake) keep(files ...*os.File) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, file := range files {
		fd, err := unix.Dup(int(file.Fd()))
		if err != nil {
			return err
		}
		f.kept = append(f.kept, os.NewFile(uintptr(fd), "kept"))
	}
	return nil
}

// scribble overwrites all kept files, and returns how many of them were writable.
func (f *fake) scribble() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	written := 0
	for _, file := range f.kept {
		if _, err := file.WriteAt(make([]byte, 64<<10), 0); err == nil {
			written++
		}
	}
	return fmt.Sprint(written)
}

// A VMM can write to its capture files for as long as it lives. Its writes do not reach the
// snapshot.
func TestAVMMCannotChangeTheSnapshotThatWasMadeOfIt(t *testing.T) {
	h, e, sb := forked(t)
	h.fault("keep-files", 1)
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b"}); err != nil {
		t.Fatal(err)
	}
	if r, err := e.Eval(t.Context(), sb.ID, sandbox.EvalRequest{Code: "scribble"}); err != nil || r.Result != "3" {
		t.Fatalf("the VMM wrote to %q files, %v; want 3", r.Result, err)
	}
	h.fork(e, "b", 2)
	h.verifies(e, "b")
}

// A VMM that never answers again costs each of its branches the time limit. Other sandboxes are not
// affected.
func TestAVMMThatHangsInItsCapture(t *testing.T) {
	h := newHost(t)
	h.cfg.BranchTimeout = 500 * time.Millisecond
	e := h.open()
	h.snapshot(e, "a")
	sbs := h.fork(e, "a", 2)
	h.fault("capture-hang", 1)
	var wg sync.WaitGroup
	for range 2 * cap(e.branches) {
		wg.Go(func() {
			_, err := e.Branch(context.Background(), sandbox.BranchRequest{SandboxID: sbs[0].ID})
			if !errors.Is(err, sandbox.ErrTimeout) && !errors.Is(err, sandbox.ErrBusy) {
				t.Errorf("got %v", err)
			}
		})
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("branches of a VMM that does not answer never end")
	}
	if n := len(e.branches); n != 0 {
		t.Errorf("%d turns are still taken", n)
	}
	e.ops.BranchTimeout = time.Minute
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sbs[1].ID}); err != nil {
		t.Errorf("another sandbox: %v", err)
	}
	if err := e.Kill(t.Context(), sbs[0].ID); err != nil {
		t.Errorf("kill: %v", err)
	}
}
