package fetcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/partial"
)

// Config configures the process.
type Config struct {
	Root    string        // of the partial files
	Mount   string        // where their files are served
	Dir     string        // of the process, in the run directory
	Limit   time.Duration // of an outage
	Reserve int64         // bytes of the disk to keep free
	Log     *slog.Logger
}

// Parallel requests of the prefetcher: for the recorded order, and for the rest, which may wait for guests.
const (
	urgentWorkers = 4
	restWorkers   = 2
)

// files are the partial files that the process knows.
type files struct {
	cfg  Config
	ctx  context.Context //nolint:containedctx // of the process
	wg   sync.WaitGroup
	rest chan struct{} // held by the file whose rest is being fetched

	mu     sync.Mutex // guards the fields below
	by     map[layer.ID]*entry
	logins map[layer.ID][]hub.Login
	opened int // handles of all files
	used   time.Time
}

// entry is a file with its worker.
type entry struct {
	file   *partial.File
	source *source
	drop   context.CancelFunc // ends the prefetch; nil before it begins
}

// source is a registry that can be replaced when a client brings new credentials.
type source struct {
	mu sync.Mutex
	registry
}

func (s *source) get() registry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registry
}

// Range implements partial.Source.
func (s *source) Range(ctx context.Context, d hub.Descriptor, at, n int64) (io.ReadCloser, error) {
	return s.get().Range(ctx, d, at, n)
}

// Distrust implements partial.Source.
func (s *source) Distrust() { s.get().Distrust() }

// add opens a file of the store, or renews the credentials of one that is open.
func (fs *files) add(id layer.ID, logins []hub.Login) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.used = time.Now()
	if len(logins) > 0 {
		fs.logins[id] = logins
	}
	if e := fs.by[id]; e != nil && e.file.Current() { // otherwise it was dropped, and pulled again
		r, err := openRegistry(fs.ctx, e.file.Origin, fs.logins[id])
		if err != nil {
			return err
		}
		e.source.mu.Lock()
		e.source.registry = r
		e.source.mu.Unlock()
		return nil
	}
	s := &source{}
	f, err := partial.Open(fs.cfg.Root, id, partial.Options{
		Source: s, Limit: fs.cfg.Limit, Wait: 100 * time.Millisecond, MaxWait: 3 * time.Second, Room: fs.room,
		Yield: fs.yield,
	})
	if err != nil {
		return err
	}
	if s.registry, err = openRegistry(fs.ctx, f.Origin, fs.logins[id]); err != nil {
		return errors.Join(err, f.Close())
	}
	fs.forgetLocked(id)
	fs.by[id] = &entry{file: f, source: s}
	return nil
}

// start begins the prefetch of files. Their recorded order is read now.
func (fs *files) start(ids []layer.ID) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, id := range ids {
		e := fs.by[id]
		if e == nil || e.drop != nil {
			continue
		}
		e.file.Reorder()
		ctx, drop := context.WithCancel(fs.ctx)
		e.drop = drop
		fs.wg.Go(func() {
			defer drop()
			fs.complete(ctx, e.file)
		})
	}
}

// forgetLocked ends the prefetch of a file that the store has dropped. Nobody uses it any more. Its space is free when
// the kernel has forgotten it, too.
func (fs *files) forgetLocked(id layer.ID) {
	if e := fs.by[id]; e != nil && e.drop != nil {
		e.drop()
	}
	delete(fs.by, id)
}

// complete fetches a file: the recorded order at once, the rest when it is its turn.
func (fs *files) complete(ctx context.Context, f *partial.File) {
	fetchAll(ctx, f, f.Urgent(), urgentWorkers)
	select {
	case fs.rest <- struct{}{}:
		defer func() { <-fs.rest }()
	case <-ctx.Done():
		return
	}
	fetchAll(ctx, f, f.All(), restWorkers)
	if err := f.Finish(ctx, nil); err != nil && ctx.Err() == nil {
		fs.cfg.Log.Error("complete file", "file", f.ID, "err", err)
	}
	fs.touch()
}

// quiet is the time without a read that waits before the rest is fetched; patience is the most it waits for that.
const (
	quiet    = 300 * time.Millisecond
	patience = 2 * time.Second
)

// yield leaves processors and the link to guests that wait for content.
func (fs *files) yield(ctx context.Context) error {
	for until := time.Now().Add(patience); time.Since(fs.lastDemand()) < quiet && time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(quiet / 3):
		}
	}
	return nil
}

func (fs *files) lastDemand() (last time.Time) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, e := range fs.by {
		if d := e.file.Demand(); d.After(last) {
			last = d
		}
	}
	return last
}

func (fs *files) touch() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.used = time.Now()
}

func fetchAll(ctx context.Context, f *partial.File, n, workers int) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { _ = f.Prefetch(ctx, n) }) // it ends with ctx only
	}
	wg.Wait()
}

// get returns a file, or nil.
func (fs *files) get(name string) *partial.File {
	id, err := layer.ParseID(name)
	if err != nil {
		return nil
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if e := fs.by[id]; e != nil {
		return e.file
	}
	return nil
}

func (fs *files) states() []State {
	fs.mu.Lock()
	all := make([]*partial.File, 0, len(fs.by))
	for _, e := range fs.by {
		all = append(all, e.file)
	}
	fs.mu.Unlock()
	out := make([]State, 0, len(all))
	for _, f := range all {
		p, t := f.Progress(), f.Trouble()
		out = append(out, State{ID: f.ID, Name: f.Name, Done: p.Done, Total: p.Total, Complete: p.Complete, Since: t.Since,
			Reason: t.Reason, Waiting: t.Waiting, Failed: t.Failed,
			Lost: !t.Since.IsZero() && time.Since(t.Since) >= fs.cfg.Limit})
	}
	slices.SortFunc(out, func(a, b State) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	return out
}

// load opens the files of the store, after a restart of the process.
func (fs *files) load() error {
	ids, err := partial.IDs(fs.cfg.Root)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := fs.add(id, nil); err != nil {
			fs.cfg.Log.Warn("open file", "file", id, "err", err)
		}
	}
	fs.start(ids)
	return nil
}

// tend records frames and forgets files that the store has dropped. It returns when the process is idle or ctx ends.
func (fs *files) tend(ctx context.Context, idle time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Second):
		}
		if fs.pass() && time.Since(fs.lastUse()) > idle {
			return
		}
	}
}

func (fs *files) lastUse() time.Time {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.used
}

// pass reports whether no file is open, and all have arrived or were dropped.
func (fs *files) pass() (idle bool) {
	fs.mu.Lock()
	all := make(map[layer.ID]*entry, len(fs.by))
	for id, e := range fs.by {
		all[id] = e
	}
	idle = fs.opened == 0
	fs.mu.Unlock()
	for id, e := range all {
		if _, gone := os.Lstat(filepath.Join(fs.cfg.Root, id.String())); gone != nil {
			fs.mu.Lock()
			if fs.by[id] == e && !e.file.Progress().Complete { // whole files have become layers
				fs.forgetLocked(id)
			}
			fs.mu.Unlock()
			continue
		}
		p := e.file.Progress()
		idle = idle && p.Complete
		if p.Complete {
			continue
		}
		if err := e.file.Save(); err != nil {
			fs.cfg.Log.Warn("record frames", "file", id, "err", err)
		}
	}
	return idle
}

func (fs *files) room(bytes int64) error {
	free, err := freeBytes(fs.cfg.Root)
	if err != nil {
		return err
	}
	if bytes > free-fs.cfg.Reserve {
		return fmt.Errorf("%w: %d MiB free including the reserve of %d MiB", storeerr.ErrNoSpace,
			free>>20, fs.cfg.Reserve>>20)
	}
	return nil
}
