package partial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
)

const (
	// aheadBytes is the most that a read of one absent frame fetches, with the frames behind it.
	aheadBytes = 512 << 10
	// batchBytes is the most of one request of the prefetcher.
	batchBytes = 1 << 20
	// saveBytes is the amount fetched between two records of the bitmap.
	saveBytes = 64 << 20
)

// errWrong: the registry sent bytes that do not match their digest.
var errWrong = errors.New("the registry sent wrong bytes")

// await returns when the frame is in the data file.
func (f *File) await(ctx context.Context, i int) error {
	if f.has(i) {
		return nil
	}
	f.mu.Lock()
	f.waiting++
	f.demand = time.Now()
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.waiting--
		f.mu.Unlock()
	}()
	wait := f.opt.Wait
	for {
		batch, flight := f.claim([]int{i}, aheadBytes, nil)
		if len(batch) > 0 {
			flight = f.flight(i)
			// The frames behind serve other readers too, so the fetch outlives this read.
			f.fetches.Go(func() { _ = f.fetch(context.WithoutCancel(ctx), batch) }) // noted as the outage
		}
		if flight != nil {
			select {
			case <-flight:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if f.has(i) {
			return nil
		}
		if err := f.lost(); err != nil {
			return err
		}
		if f.Trouble().Since.IsZero() && flight != nil {
			runtime.Gosched() // the fetch ended before this frame, or is about to note why
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
		wait = min(2*wait, f.opt.MaxWait)
	}
}

// flight returns the channel of a claimed frame, or nil if the claim has ended.
func (f *File) flight(i int) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flying[i]
}

// lost returns an error if the limit has passed.
func (f *File) lost() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since.IsZero() || time.Since(f.since) < f.opt.Limit {
		return nil
	}
	f.failed = time.Now()
	return fmt.Errorf("%w: for %s: %w", ErrLost, time.Since(f.since).Round(time.Second), f.reason)
}

// claim takes the first missing frame of the list, and those behind it in the blob, for a fetch. only, if not nil, are
// the frames to take. If all missing frames are being fetched, it returns the attempt for the first one. It returns
// neither if no frame is missing.
func (f *File) claim(from []int, most int64, only bits) (batch []int, flight chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range from {
		if f.have.has(i) {
			continue
		}
		if c := f.flying[i]; c != nil {
			if flight == nil {
				flight = c
			}
			continue
		}
		return f.claimLocked(i, most, only), nil
	}
	return nil, flight
}

// claimLocked takes frame i and the missing ones behind it. Frames that need no bytes lie between them.
func (f *File) claimLocked(i int, most int64, only bits) (batch []int) {
	for size := int64(0); i < len(f.table.Frames); i++ {
		n := int64(f.table.Frames[i].Bytes)
		if n == 0 {
			continue
		}
		if f.have.has(i) || f.flying[i] != nil || size > 0 && (size+n > most || only != nil && !only.has(i)) {
			break
		}
		size += n
		f.flying[i] = make(chan struct{})
		batch = append(batch, i)
	}
	return batch
}

// fetch gets claimed frames, which lie one behind the other in the blob. It ends the claim.
func (f *File) fetch(ctx context.Context, batch []int) error {
	err := f.receive(ctx, batch)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noteLocked(err) // before the readers wake
	for _, i := range batch {
		f.landLocked(i)
	}
	return err
}

// landLocked ends the claim of a frame and wakes its readers.
func (f *File) landLocked(i int) {
	if c := f.flying[i]; c != nil {
		delete(f.flying, i)
		close(c)
	}
}

// noteLocked keeps the beginning of an outage.
func (f *File) noteLocked(err error) {
	switch {
	case err == nil:
		f.since, f.reason = time.Time{}, nil
	case errors.Is(err, context.Canceled): // its owner ends
	default:
		if f.reason = err; f.since.IsZero() {
			f.since = time.Now()
		}
	}
}

// unpacker unpacks frames. A new one costs as much as a frame.
type unpacker struct {
	*hub.Opener
	packed [hub.ChunkBytes + 4<<10]byte
}

var unpackers sync.Pool

func takeUnpacker() (*unpacker, error) {
	if u, _ := unpackers.Get().(*unpacker); u != nil {
		return u, nil
	}
	o, err := hub.NewOpener()
	return &unpacker{Opener: o}, err
}

// receive reads the frames of one range. Each frame is usable as soon as it is written.
func (f *File) receive(ctx context.Context, batch []int) error {
	first, last := f.table.Chunk(batch[0]), f.table.Chunk(batch[len(batch)-1])
	size := last.At + last.Bytes - first.At
	if f.opt.Room != nil {
		if err := f.opt.Room(int64(len(batch)) * hub.ChunkBytes); err != nil {
			return err
		}
	}
	r, err := f.opt.Source.Range(ctx, f.Frames, first.At, size)
	if err != nil {
		return err
	}
	defer r.Close()
	u, err := takeUnpacker()
	if err != nil {
		return err
	}
	defer unpackers.Put(u)
	for _, i := range batch {
		b := u.packed[:f.table.Chunk(i).Bytes]
		if _, err := io.ReadFull(r, b); err != nil {
			return fmt.Errorf("read frame %d of %s: %w", i, f.Name, err)
		}
		content, err := u.Open(f.table, i, b)
		if err != nil {
			f.opt.Source.Distrust()
			return fmt.Errorf("%s: %w: %w", f.Name, errWrong, err)
		}
		if _, err := f.data.WriteAt(content, f.table.Chunk(i).Offset); err != nil {
			return storeerr.NoSpace(err)
		}
		f.keep(i)
	}
	return nil
}

// keep marks a frame that is in the data file.
func (f *File) keep(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.have.has(i) {
		f.have.set(i)
		f.missing--
		f.unsaved += hub.ChunkBytes
		f.since, f.reason = time.Time{}, nil
	}
	f.landLocked(i)
}

// Urgent returns the number of frames in the recorded order.
func (f *File) Urgent() int { return f.urgent }

// All returns the number of all frames.
func (f *File) All() int { return len(f.order) }

// Prefetch fetches the first n frames of the order. It returns when they have come, or ctx ends. It repeats failed
// requests.
func (f *File) Prefetch(ctx context.Context, n int) error {
	wait := f.opt.Wait
	todo := f.order[:min(n, len(f.order))]
	var only bits
	if n < len(f.order) {
		only = newBits(len(f.order))
		for _, i := range todo {
			only.set(i)
		}
	}
	for len(todo) > 0 {
		if f.has(todo[0]) {
			todo = todo[1:]
			continue
		}
		if f.opt.Yield != nil && only == nil {
			if err := f.opt.Yield(ctx); err != nil {
				return err
			}
		}
		batch, flight := f.claim(todo, batchBytes, only)
		var err error
		switch {
		case len(batch) > 0:
			err = f.fetch(ctx, batch)
		case flight != nil:
			select {
			case <-flight:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			err = f.saveSometimes()
			wait = f.opt.Wait
		}
		if err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
		wait = min(2*wait, f.opt.MaxWait)
	}
	return nil
}

func (f *File) saveSometimes() error {
	f.mu.Lock()
	due := f.unsaved >= saveBytes
	f.mu.Unlock()
	if !due {
		return nil
	}
	return f.Save()
}

// Finish verifies the whole file and marks it as complete. It fetches damaged frames again. pause is called before each
// frame and may block; it may be nil.
func (f *File) Finish(ctx context.Context, pause func(context.Context) error) error {
	for {
		if err := f.Prefetch(ctx, len(f.order)); err != nil {
			return err
		}
		bad, err := f.verify(ctx, pause)
		if err != nil {
			return err
		}
		if bad == 0 {
			break
		}
	}
	f.mu.Lock()
	f.unsaved = max(f.unsaved, 1)
	f.mu.Unlock()
	if err := f.Save(); err != nil {
		return err
	}
	if err := durable.Replace(filepath.Join(f.dir, layer.PartialMark), nil); err != nil {
		return err
	}
	if err := durable.SyncDir(f.dir); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done, f.since, f.reason = true, time.Time{}, nil
	return nil
}

// verify compares the data with the digests, and returns the number of frames that differ. It drops them.
func (f *File) verify(ctx context.Context, pause func(context.Context) error) (bad int, err error) {
	buf := make([]byte, hub.ChunkBytes)
	for i := range f.table.Frames {
		if ctx.Err() != nil {
			return bad, context.Cause(ctx)
		}
		if pause != nil {
			if err := pause(ctx); err != nil {
				return bad, err
			}
		}
		c := f.table.Chunk(i)
		if _, err := f.data.ReadAt(buf[:c.Length], c.Offset); err != nil {
			return bad, err
		}
		if f.table.Matches(i, buf[:c.Length]) {
			continue
		}
		if c.Bytes == 0 {
			return bad, fmt.Errorf("%s: zeros at byte %d were overwritten", f.Name, c.Offset)
		}
		bad++
		f.mu.Lock()
		if f.have.has(i) {
			f.have.drop(i)
			f.missing++
		}
		f.mu.Unlock()
	}
	return bad, nil
}
