package engine

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
)

// manyPaused is how many sandboxes are paused here, and pausedCost what each may cost the daemon. fewFiles are those that
// its own work may have open at the moment.
const (
	manyPaused = 1000
	pausedCost = 2 << 10 // bytes of its heap
	fewFiles   = 50
)

// A thousand paused sandboxes cost the daemon 2 KiB each at most and no descriptor; a daemon that finds them is up soon,
// and lists them at once.
func TestAThousandPausedSandboxes(t *testing.T) {
	h, e, sb := pauseHost(t)
	one := h.pause(e, sb.ID)
	h.close(e)
	heap, files, _ := h.weigh(1)
	h.copyRecords(one.ID)
	h.close(h.open()) // which leaves the receipts that copies have not
	many, manyFiles, e := h.weigh(manyPaused)
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
	// Each is a sandbox of its own: one goes on, one ends, and the others stay.
	other := recordID(manyPaused / 2)
	if got := h.resume(e, other); got.Status != sandbox.StatusRunning {
		t.Errorf("resumed: %+v", got)
	}
	if err := e.Kill(t.Context(), recordID(1)); err != nil {
		t.Error(err)
	}
	if n := len(e.List()); n != manyPaused-1 {
		t.Errorf("%d are listed", n)
	}
}

// startLimit is within how long a daemon with a thousand paused sandboxes has to be up: a loaded machine's.
const startLimit = 15 * time.Second

// weigh starts an engine that finds n sandboxes, and says what it has in its heap, and how many files are open.
func (h *host) weigh(n int) (heap, files int, e *Engine) {
	h.t.Helper()
	before := liveHeap()
	began := time.Now()
	e = h.open()
	if took := time.Since(began); took > startLimit {
		h.t.Errorf("a daemon with %d paused sandboxes is up after %s", n, took)
	} else {
		h.t.Logf("with %d it is up after %s", n, took)
	}
	if got := len(e.List()); got != n {
		h.t.Fatalf("%d sandboxes are listed, want %d", got, n)
	}
	heap = liveHeap() - before
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		h.t.Fatal(err)
	}
	if n == 1 {
		h.close(e)
	}
	return heap, len(open), e
}

// liveHeap is what the program still refers to: the least of some looks, as the daemon has work in the
// background, of which some bytes are alive at any moment.
func liveHeap() int {
	least := math.MaxInt
	for range 10 {
		time.Sleep(20 * time.Millisecond) // elapses: some of that work ends
		runtime.GC()
		runtime.GC() // what the first has finalized
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		least = min(least, int(m.HeapAlloc))
	}
	return least
}

func recordID(i int) string { return fmt.Sprintf("sb-0badcafe-%04d", i) }

// copyRecords makes many of the record of one paused sandbox.
func (h *host) copyRecords(id string) {
	h.t.Helper()
	dir := filepath.Join(h.cfg.StoreDir, "paused")
	b, err := os.ReadFile(filepath.Join(dir, id+".json"))
	if err != nil {
		h.t.Fatal(err)
	}
	for i := 1; i < manyPaused; i++ {
		// The snapshot's tag, which has the id in it as well, stays that of the one that there is.
		other := bytes.ReplaceAll(b, []byte(`"`+id+`"`), []byte(`"`+recordID(i)+`"`))
		if err := os.WriteFile(filepath.Join(dir, recordID(i)+".json"), other, 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
}
