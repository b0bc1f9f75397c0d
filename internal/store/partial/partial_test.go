package partial

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/layer"
)

const body = 9*hub.ChunkBytes + 5000

func TestAReadFetchesOnlyWhatItNeeds(t *testing.T) {
	b := newBench(t, body)
	f := b.open(t)
	b.wantRange(t, f, 4096+3*hub.ChunkBytes+7, 1000) // zeros
	if n, _ := b.count(); n != 0 {
		t.Errorf("zeros took %d requests", n)
	}
	b.wantRange(t, f, 4096+5*hub.ChunkBytes-10, 20) // over a border
	requests, bytes := b.count()
	if requests == 0 || bytes > 3*aheadBytes {
		t.Errorf("%d requests for %d bytes", requests, bytes)
	}
	b.wantRange(t, f, 4096+5*hub.ChunkBytes-10, 20)
	if again, _ := b.count(); again != requests {
		t.Errorf("the second read sent %d requests", again-requests)
	}
	b.wantRange(t, f, 0, 4096)
	b.wantRange(t, f, len(b.b.content)-10, 100) // beyond the end
	if p := f.Progress(); p.Complete || p.Done == 0 || p.Done >= p.Total {
		t.Errorf("progress %+v", p)
	}
}

func TestTheRecordedOrderComesFirst(t *testing.T) {
	b := newBench(t, body)
	must(t, WriteOrder(filepath.Join(b.root, b.id.String()), []int64{8 * hub.ChunkBytes, 8*hub.ChunkBytes + 5, 0, 1 << 50}))
	f := b.open(t)
	if f.Urgent() < 3 || f.Urgent() > 5 || f.All() != len(b.b.table.Frames) {
		t.Fatalf("%d urgent frames of %d", f.Urgent(), f.All())
	}
	must(t, f.Prefetch(t.Context(), f.Urgent()))
	if !f.has(f.frameAt(8*hub.ChunkBytes)) || !f.has(0) || f.has(f.frameAt(6*hub.ChunkBytes)) {
		t.Errorf("it fetched %b", f.have)
	}
}

func TestAWholeFileSurvivesRestarts(t *testing.T) {
	b := newBench(t, body)
	f := b.open(t)
	b.wantRange(t, f, 5000, 10)
	must(t, f.Close())
	before, _ := b.count()
	f = b.open(t)
	b.wantRange(t, f, 5000, 10)
	if n, _ := b.count(); n != before {
		t.Errorf("a recorded frame was fetched again")
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { _ = f.Prefetch(t.Context(), f.All()) })
	}
	wg.Wait()
	must(t, f.Finish(t.Context(), nil))
	if _, bytes := b.count(); bytes > int64(len(b.b.frames)) {
		t.Errorf("%d bytes were fetched of a blob of %d", bytes, len(b.b.frames))
	}
	p, err := Read(b.root, b.id)
	must(t, err)
	if !p.Complete || p.Done != p.Total || !layer.PartialComplete(filepath.Join(b.root, b.id.String())) {
		t.Errorf("progress %+v", p)
	}
	got, err := os.ReadFile(filepath.Join(b.root, b.id.String(), layer.PartialData))
	must(t, err)
	if string(got) != string(b.b.content) {
		t.Error("the data is another")
	}
}

// A frame that was written, but not recorded, is fetched again. One that was recorded and lost is found at the end.
func TestLostAndDamagedData(t *testing.T) {
	b := newBench(t, body)
	f := b.open(t)
	must(t, f.Prefetch(t.Context(), f.All()))
	must(t, f.Save())
	_, err := f.data.WriteAt([]byte("damage"), 4096+6*hub.ChunkBytes)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(f.dir, bitsFile), []byte("nonsense"), 0o600))
	must(t, f.Finish(t.Context(), nil))
	b.wantRange(t, f, 4096+6*hub.ChunkBytes-10, 1000)
	f = b.open(t)
	if have, err := readBits(f.dir, len(b.b.table.Frames)); err != nil || !have.has(2) {
		t.Errorf("%b, %v", have, err)
	}
}

func TestAnOutage(t *testing.T) {
	b := newBench(t, body)
	f := b.open(t)
	b.set(errDown, nil)
	read := make(chan error, 1)
	go func() {
		_, err := f.ReadAt(context.Background(), make([]byte, 10), 5000)
		read <- err
	}()
	for f.Trouble().Waiting == 0 || f.Trouble().Since.IsZero() {
		select {
		case err := <-read:
			t.Fatalf("the read ended: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	if tr := f.Trouble(); !strings.Contains(tr.Reason, errDown.Error()) {
		t.Errorf("trouble %+v", tr)
	}
	b.set(nil, nil)
	if err := <-read; err != nil {
		t.Errorf("the registry is back, and the read fails: %v", err)
	}
	if tr := f.Trouble(); !tr.Since.IsZero() || tr.Waiting != 0 {
		t.Errorf("trouble %+v", tr)
	}
}

func TestTheLimitOfAnOutage(t *testing.T) {
	b := newBench(t, body)
	b.opt.Limit = 20 * time.Millisecond
	f := b.open(t)
	b.set(errDown, nil)
	if _, err := f.ReadAt(t.Context(), make([]byte, 10), 5000); !errors.Is(err, ErrLost) || !errors.Is(err, errDown) {
		t.Errorf("got %v", err)
	}
	b.set(nil, nil)
	must(t, f.Prefetch(t.Context(), f.All())) // it goes on
	b.wantRange(t, f, 5000, 10)
}

func TestALyingRegistry(t *testing.T) {
	for name, mangle := range map[string]func(int64, []byte) []byte{
		"a flipped bit":  func(_ int64, b []byte) []byte { b[100] ^= 1; return b },
		"a cut answer":   func(_ int64, b []byte) []byte { return b[:100] },
		"an empty one":   func(int64, []byte) []byte { return nil },
		"other bytes":    func(_ int64, b []byte) []byte { clear(b); return b },
		"another offset": func(_ int64, b []byte) []byte { return b[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, body)
			f := b.open(t)
			b.set(nil, mangle)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := f.ReadAt(ctx, make([]byte, 10), 5000); err == nil {
				t.Error("its bytes were taken")
			}
			if f.Trouble().Since.IsZero() {
				t.Error("no trouble is reported")
			}
			b.set(nil, func(_ int64, b []byte) []byte { return append(b, make([]byte, 1<<20)...) }) // more than asked for
			b.wantRange(t, f, 5000, 10)
		})
	}
}

func TestAFullDisk(t *testing.T) {
	b := newBench(t, body)
	var mu sync.Mutex
	full := storeerr.ErrNoSpace
	b.opt.Room = func(int64) error { mu.Lock(); defer mu.Unlock(); return full }
	f := b.open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := f.Prefetch(ctx, f.All()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if n, _ := b.count(); n != 0 || !strings.Contains(f.Trouble().Reason, full.Error()) {
		t.Errorf("%d requests, %+v", n, f.Trouble())
	}
	mu.Lock()
	full = nil
	mu.Unlock()
	must(t, f.Finish(t.Context(), nil))
}

// A reader that gives up does not end the fetch that another one waits for.
func TestAReaderThatLeaves(t *testing.T) {
	b := newBench(t, body)
	gate := make(chan struct{})
	b.gate = gate
	f := b.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := f.Await(ctx, 5000, 10); first <- err }()
	for f.Trouble().Waiting < 1 {
		time.Sleep(time.Millisecond) // elapses: until the reader waits
	}
	go func() { _, err := f.Await(context.Background(), 5000, 10); second <- err }()
	for f.Trouble().Waiting < 2 {
		time.Sleep(time.Millisecond) // elapses: until the reader waits
	}
	cancel()
	close(gate)
	if err := <-second; err != nil {
		t.Error(err)
	}
	<-first
}

func TestFoldersThatAreDamaged(t *testing.T) {
	for name, harm := range map[string]func(dir string) error{
		"no description": func(dir string) error { return os.Remove(filepath.Join(dir, specFile)) },
		"another table": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, tableFile), (&hub.Table{}).Encode(), 0o600)
		},
		"data of another size": func(dir string) error { return os.Truncate(filepath.Join(dir, layer.PartialData), 5) },
		"nonsense":             func(dir string) error { return os.WriteFile(filepath.Join(dir, specFile), []byte("{"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, body)
			must(t, harm(filepath.Join(b.root, b.id.String())))
			if f, err := Open(b.root, b.id, b.opt); err == nil {
				t.Errorf("opened %+v", f.Spec)
			}
		})
	}
}

func FuzzFolder(f *testing.F) {
	b := newBench(f, hub.ChunkBytes)
	dir := filepath.Join(b.root, b.id.String())
	spec, err := os.ReadFile(filepath.Join(dir, specFile))
	must(f, err)
	f.Add(spec, b.b.table.Encode(), encodeBits(bits{1}), []byte{1, 0, 0, 0})
	f.Add([]byte("{}"), []byte("FORKDTBL"), []byte{}, []byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, spec, table, have, order []byte) {
		root := t.TempDir()
		id := layer.NewID()
		dir := filepath.Join(root, id.String())
		must(t, os.Mkdir(dir, 0o700))
		for name, b := range map[string][]byte{specFile: spec, tableFile: table, bitsFile: have, orderFile: order} {
			must(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		}
		must(t, os.WriteFile(filepath.Join(dir, layer.PartialData), nil, 0o600))
		s, _, err := readSpec(dir)
		if err != nil || s.Size > 1<<30 {
			return
		}
		must(t, os.Truncate(filepath.Join(dir, layer.PartialData), s.Size))
		file, err := Open(root, id, b.opt)
		if err != nil {
			return
		}
		defer file.data.Close()
		if p := file.Progress(); p.Done > p.Total || file.Urgent() > file.All() {
			t.Errorf("progress %+v", p)
		}
		if at := file.frameAt(s.Size - 1); s.Size > 0 && at != len(file.table.Frames)-1 {
			t.Errorf("the last byte is in frame %d of %d", at, len(file.table.Frames))
		}
	})
}
