package sandboxes_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// manyPaused is the number of paused sandboxes in this test, and pausedCost the maximum cost of
// each for the daemon. fewFiles is the number of files its own work may have open.
const (
	manyPaused = 1000
	pausedCost = 2 << 10 // bytes of its heap
	fewFiles   = 50
)

// A thousand paused sandboxes cost the daemon at most 2 KiB each and no descriptors. A daemon that
// finds them is up soon, and lists them immediately.
func TestAThousandPausedSandboxes(t *testing.T) {
	h, e, sb := enginefake.PauseHost(t)
	one := h.Pause(e, sb.ID)
	h.Close(e)
	heap, files, _ := weigh(h, 1)
	copyRecords(h, one.ID)
	h.Close(h.Open()) // writes the receipts missing for the copies
	many, manyFiles, e := weigh(h, manyPaused)
	each := (many - heap) / (manyPaused - 1)
	t.Logf("each takes %d bytes; %d descriptors more", each, manyFiles-files)
	if each > pausedCost {
		t.Errorf("a paused sandbox takes %d bytes of the daemon's heap, want %d", each, pausedCost)
	}
	if manyFiles > files+fewFiles {
		t.Errorf("%d descriptors for %d paused sandboxes", manyFiles-files, manyPaused)
	}
	began := time.Now()
	e.Look(t.Context())
	if n, took := len(e.List()), time.Since(began); n != manyPaused || took > time.Second {
		t.Errorf("%d are listed after %s", n, took)
	}
	// Each is a separate sandbox: one resumes, one ends, and the others stay.
	other := recordID(manyPaused / 2)
	if got := h.Resume(e, other); got.Status != sandbox.StatusRunning {
		t.Errorf("resumed: %+v", got)
	}
	if err := e.Kill(t.Context(), recordID(1)); err != nil {
		t.Error(err)
	}
	if n := len(e.List()); n != manyPaused-1 {
		t.Errorf("%d are listed", n)
	}
}

// startLimit is the time in which a daemon with a thousand paused sandboxes must be up, on a loaded
// machine.
const startLimit = 15 * time.Second

// weigh starts an engine that finds n sandboxes, and returns its heap size and its number of open
// files.
func weigh(h *enginefake.Host, n int) (heap, files int, e *engine.Engine) {
	h.T.Helper()
	before := liveHeap()
	began := time.Now()
	e = h.Open()
	if took := time.Since(began); took > startLimit {
		h.T.Errorf("a daemon with %d paused sandboxes is up after %s", n, took)
	} else {
		h.T.Logf("with %d it is up after %s", n, took)
	}
	if got := len(e.List()); got != n {
		h.T.Fatalf("%d sandboxes are listed, want %d", got, n)
	}
	heap = liveHeap() - before
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		h.T.Fatal(err)
	}
	if n == 1 {
		h.Close(e)
	}
	return heap, len(open), e
}

// liveHeap returns the size of the live heap. It is the minimum of several measurements, as
// background work keeps some bytes alive at any moment.
func liveHeap() int {
	least := math.MaxInt
	for range 10 {
		time.Sleep(20 * time.Millisecond) // elapses: some of that work ends
		runtime.GC()
		runtime.GC() // objects finalized by the first
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		least = min(least, int(m.HeapAlloc))
	}
	return least
}

func recordID(i int) string { return fmt.Sprintf("sb-0badcafe-%04d", i) }

// copyRecords makes many copies of the record of one paused sandbox.
func copyRecords(h *enginefake.Host, id string) {
	h.T.Helper()
	dir := filepath.Join(h.Cfg.StoreDir, "paused")
	b, err := os.ReadFile(filepath.Join(dir, id+".json"))
	if err != nil {
		h.T.Fatal(err)
	}
	for i := 1; i < manyPaused; i++ {
		// The snapshot's tag also contains the id; it stays the tag of the existing snapshot.
		other := bytes.ReplaceAll(b, []byte(`"`+id+`"`), []byte(`"`+recordID(i)+`"`))
		if err := os.WriteFile(filepath.Join(dir, recordID(i)+".json"), other, 0o600); err != nil {
			h.T.Fatal(err)
		}
	}
}
