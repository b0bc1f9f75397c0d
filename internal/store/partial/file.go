package partial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Source reads ranges of blobs from a registry.
type Source interface {
	// Range returns the bytes [at, at+n) of a blob, and may send more or fewer.
	Range(ctx context.Context, blob hub.Descriptor, at, n int64) (io.ReadCloser, error)
	// Distrust is called if the bytes were wrong. The next Range asks elsewhere if it can.
	Distrust()
}

// Options configures a File.
type Options struct {
	Source Source
	// Room returns an error if writing these bytes would use the reserve of the disk. It may be nil.
	Room func(bytes int64) error
	// Yield is called before each request for the part that has no recorded order, and may block. It may be nil.
	Yield func(context.Context) error
	// Limit is the time without an answer after which reads of absent frames fail.
	Limit time.Duration
	// Wait is the time before the first repetition; it doubles up to MaxWait.
	Wait, MaxWait time.Duration
}

// ErrLost is the error of a read after the limit.
var ErrLost = errors.New("the rest of a snapshot cannot be fetched")

// File is an open partial file. It is safe for concurrent use.
type File struct {
	Spec
	ID     layer.ID
	dir    string
	opt    Options
	table  *hub.Table
	data   *os.File
	order  []int // of frames: first the urgent ones of the recorded order, then the rest
	urgent int

	mu      sync.Mutex // guards the fields below
	have    bits
	missing int                   // frames
	flying  map[int]chan struct{} // frames being fetched; closed when one has come or its attempt has ended
	unsaved int64                 // bytes of frames that the durable bitmap lacks
	since   time.Time             // of the first failure without a success after it; zero if it works
	reason  error                 // of the last failure
	waiting int                   // reads of absent frames
	demand  time.Time             // of the last one
	failed  time.Time             // of the last read that failed
	done    bool                  // whole and verified

	fetches sync.WaitGroup // of reads that may have left

	saving sync.Mutex // held while the bitmap is written
}

// Open opens a file of root. It checks the zeros of its table.
func Open(root string, id layer.ID, opt Options) (*File, error) {
	f, err := open(filepath.Join(root, id.String()), opt)
	if err != nil {
		return nil, fmt.Errorf("open partial file %s: %w", id, err)
	}
	f.ID = id
	return f, nil
}

func open(dir string, opt Options) (*File, error) {
	spec, t, err := readSpec(dir)
	if err != nil {
		return nil, err
	}
	f := &File{Spec: spec, dir: dir, opt: opt, table: t, flying: map[int]chan struct{}{}}
	if len(t.Frames) > 0 {
		t.Chunk(0) // computes the offsets, which concurrent readers use
	}
	if f.have, err = readBits(dir, len(t.Frames)); err != nil {
		return nil, err
	}
	if err := f.checkZeros(); err != nil {
		return nil, err
	}
	f.arrange()
	if f.data, err = os.OpenFile(filepath.Join(dir, layer.PartialData), os.O_RDWR, 0); err != nil {
		return nil, err
	}
	st, err := f.data.Stat()
	if err == nil && st.Size() != spec.Size {
		err = fmt.Errorf("its data has %d bytes, want %d", st.Size(), spec.Size)
	}
	if err != nil {
		f.data.Close()
		return nil, err
	}
	f.done = layer.PartialComplete(dir)
	return f, nil
}

// checkZeros counts the missing frames. Chunks of zeros have no frame.
func (f *File) checkZeros() error {
	o, err := hub.NewOpener()
	if err != nil {
		return err
	}
	defer o.Close()
	for i, fr := range f.table.Frames {
		if fr.Bytes == 0 {
			if _, err := o.Open(f.table, i, nil); err != nil {
				return err
			}
			f.have.set(i)
		}
		if !f.have.has(i) {
			f.missing++
		}
	}
	return nil
}

// arrange computes the order of the prefetch. The recorded order counts chunks of the file, whose parts have chunks
// of their own: chunk c lies in the frames around c.
func (f *File) arrange() {
	seen := newBits(len(f.table.Frames))
	add := func(i int) {
		if i < len(f.table.Frames) && !seen.has(i) {
			seen.set(i)
			f.order = append(f.order, i)
		}
	}
	for _, chunk := range readOrder(f.dir) {
		at := int64(chunk) * hub.ChunkBytes
		for i := f.frameAt(at); i >= 0 && i < len(f.table.Frames) && f.table.Chunk(i).Offset < at+hub.ChunkBytes; i++ {
			add(i)
		}
	}
	f.urgent = len(f.order)
	for i := range f.table.Frames {
		add(i)
	}
}

// Reorder reads the recorded order again.
func (f *File) Reorder() {
	f.order = nil
	f.arrange()
}

// frameAt returns the frame with the byte at an offset of the file, or -1.
func (f *File) frameAt(at int64) int {
	if at < 0 || at >= f.Size {
		return -1
	}
	t, first := f.table, 0
	for _, part := range []int64{t.Head, t.Body, t.Tail} {
		if at < part {
			return first + int(at/hub.ChunkBytes)
		}
		at -= part
		first += int((part + hub.ChunkBytes - 1) / hub.ChunkBytes)
	}
	return -1
}

// ReadAt reads the file. It fetches absent frames, and blocks until they have come, ctx ends or the limit has passed.
func (f *File) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if off < 0 || off >= f.Size {
		return 0, io.EOF
	}
	n, err := f.Await(ctx, off, len(p))
	if err != nil {
		return 0, err
	}
	n, err = f.data.ReadAt(p[:n], off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Await returns when the range is in the data file, and the number of its bytes that the file has.
func (f *File) Await(ctx context.Context, off int64, n int) (int, error) {
	if off < 0 || off >= f.Size {
		return 0, nil
	}
	n = int(min(int64(n), f.Size-off))
	for i, last := f.frameAt(off), f.frameAt(off+int64(n)-1); i <= last && n > 0; i++ {
		if err := f.await(ctx, i); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// Data returns the descriptor of the data file, for reads of ranges that Await has returned for.
func (f *File) Data() uintptr { return f.data.Fd() }

// has reports whether the frame is in the data file.
func (f *File) has(i int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.have.has(i)
}

// Progress returns the file's state.
func (f *File) Progress() Progress {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := Progress{Total: f.table.BlobBytes(), Complete: f.done}
	for i := range f.table.Frames {
		if f.done || f.have.has(i) {
			p.Done += f.table.Chunk(i).Bytes
		}
	}
	if f.done {
		p.Done = p.Total
	}
	return p
}

// Trouble is an outage.
type Trouble struct {
	Since   time.Time // of the first failure; zero if there is none
	Reason  string    // of the last one
	Waiting int       // reads that wait for a frame
	Failed  time.Time // of the last read that failed after the limit, or zero
}

// Trouble returns the present outage.
func (f *File) Trouble() Trouble {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := Trouble{Since: f.since, Waiting: f.waiting, Failed: f.failed}
	if f.reason != nil && !f.since.IsZero() {
		t.Reason = f.reason.Error()
	}
	return t
}

// Current reports whether the folder still has this file.
func (f *File) Current() bool {
	mine, err := f.data.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(filepath.Join(f.dir, layer.PartialData))
	return err == nil && os.SameFile(mine, now)
}

// Demand returns the time of the last read that had to wait.
func (f *File) Demand() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.demand
}

// Save makes the frames durable and then records them.
func (f *File) Save() error {
	f.saving.Lock()
	defer f.saving.Unlock()
	f.mu.Lock()
	have, n := append(bits(nil), f.have...), f.unsaved
	f.unsaved = 0
	f.mu.Unlock()
	if n == 0 {
		return nil
	}
	err := f.data.Sync()
	if err == nil {
		err = durable.Replace(filepath.Join(f.dir, bitsFile), encodeBits(have))
	}
	if err != nil {
		f.mu.Lock()
		f.unsaved += n
		f.mu.Unlock()
	}
	return err
}

// Close records the frames and closes the data. No read may follow.
func (f *File) Close() error {
	f.fetches.Wait()
	return errors.Join(f.Save(), f.data.Close())
}
