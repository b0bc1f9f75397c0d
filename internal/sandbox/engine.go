package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/layer/store"
	"github.com/forkd/forkd/internal/receipt"
	"github.com/forkd/forkd/internal/snapshot"
	"github.com/forkd/forkd/internal/undo"
)

// Engine is the domain's one object: it owns the snapshots, the sandboxes, the
// pools and all VM processes. Its methods are safe for concurrent use.
type Engine struct {
	cfg      Config
	store    *snapshot.Store
	layers   *store.Store // of the snapshots' memory and disks
	receipts *receipt.Store
	locks    []*os.File // on StoreDir and RunDir, held until Close
	kvm      *os.File

	// root ends when Close runs out of patience; its cause is ErrClosing.
	root    context.Context
	abandon context.CancelCauseFunc
	// background ends when Close begins: pools, digests, expiry.
	background     context.Context
	stopBackground context.CancelFunc
	workers        sync.WaitGroup
	released       chan struct{} // closed by Close: watchers let go of VMs that run on
	watchers       sync.WaitGroup

	pools      *pools
	branches   chan struct{} // a value for each Branch under way
	traffic    traffic
	sealing    chan string
	collecting chan struct{} // layers to be collected
	memory     admission
	guests     guests

	nextVM  atomic.Uint64
	nextCID atomic.Uint32
	randMu  sync.Mutex // the injected reader need not be safe for concurrent use

	// mu guards what follows. It is never held across I/O or a call to a VM.
	mu       sync.Mutex
	closing  bool
	inflight sync.WaitGroup // Add only under mu while !closing
	boxes    map[string]*box
	creating map[string]SnapshotInfo
	writing  map[string]chan struct{} // closed when the branch that makes the tag has ended
	using    map[string]int           // forks under way, by tag
	failed   map[string]SnapshotInfo  // branches that failed when nobody waited, until they are deleted
	deleting map[string]bool          // tags
	closed   chan struct{}
}

// Open starts the engine: it takes over the VMs that still run in RunDir,
// clears away what belongs to nobody, and begins to fill the pools. Only one
// engine can be open on a directory.
func Open(ctx context.Context, c Config) (_ *Engine, err error) {
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	var u undo.Stack
	defer u.OnError(&err)
	e := &Engine{
		cfg: c, released: make(chan struct{}), closed: make(chan struct{}), sealing: make(chan string, 1024), collecting: make(chan struct{}, 1),
		boxes: map[string]*box{}, creating: map[string]SnapshotInfo{}, writing: map[string]chan struct{}{}, using: map[string]int{}, failed: map[string]SnapshotInfo{}, deleting: map[string]bool{},
	}
	if err := e.beginCIDs(); err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	e.pools = newPools(c.PoolSize)
	e.branches = make(chan struct{}, c.Branches)
	e.guests = newGuests(c.Branches)
	e.memory.engine = e
	e.root, e.abandon = context.WithCancelCause(context.Background())
	u.Push(func() { e.abandon(ErrClosing) })
	e.background, e.stopBackground = context.WithCancel(e.root)
	for _, dir := range []string{c.StoreDir, c.RunDir} {
		if err := e.lock(dir); err != nil {
			return nil, fmt.Errorf("open engine: %w", err)
		}
		u.Push(e.unlock)
	}
	if e.layers, err = store.Open(filepath.Join(c.StoreDir, "layers"), store.Options{Reserve: c.DiskReserve}); err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	if e.store, err = snapshot.OpenStore(filepath.Join(c.StoreDir, "snapshots"), e.layers); err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	if e.receipts, err = receipt.Open(filepath.Join(c.StoreDir, "receipts"), receipt.Limits{}); err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	if e.kvm, err = c.OpenKVM(); err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	u.Push(func() { e.kvm.Close() })
	raiseFileLimit()
	raisePriority()
	if err := e.adoptAll(ctx); err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	e.recoverReceipts()
	e.loadPools()
	e.startWorkers()
	return e, nil
}

// lock makes sure that no other engine works on the directory.
func (e *Engine) lock(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return problem(ErrConflict, "stop the other daemon, or give this one directories of its own", "another daemon uses %s", dir)
	}
	e.locks = append(e.locks, f)
	return nil
}

func (e *Engine) unlock() {
	for _, f := range e.locks {
		f.Close()
	}
	e.locks = nil
}

func (e *Engine) startWorkers() {
	for range refillers {
		e.workers.Go(func() { e.refill(e.background) })
	}
	e.workers.Go(func() { e.sealAll(e.background) })
	e.workers.Go(func() { e.expire(e.background) })
	e.workers.Go(func() { e.sweepTransient(e.background) })
	e.workers.Go(func() { e.collectAll(e.background) })
	e.workers.Go(func() { e.writeReceipts(e.background) })
}

// begin admits a request. The context it returns ends with the caller's, or
// with the engine; done must be called.
func (e *Engine) begin(ctx context.Context) (_ context.Context, done func(), _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return nil, nil, ErrClosing
	}
	e.inflight.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.root, func() { cancel(context.Cause(e.root)) })
	return ctx, func() {
		stop()
		cancel(nil)
		e.inflight.Done()
	}, nil
}

// Close stops the engine: new requests get ErrClosing, those under way may
// finish until ctx ends and are cancelled then, shells are ended. Running VMs
// are left for the next engine, or ended if Config.KillOnClose. A second Close
// waits for the first.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		<-e.closed
		return nil
	}
	e.closing = true
	e.mu.Unlock()
	defer close(e.closed)
	err := e.finishRequests(ctx)
	e.stopBackground()
	e.workers.Wait()
	e.flushReceipts()
	e.discardAll(e.pools.drain())
	e.pools.sources.dropAll()
	e.leaveBoxes()
	close(e.released)
	e.watchers.Wait()
	e.abandon(ErrClosing)
	e.kvm.Close()
	e.unlock()
	return err
}

// finishRequests waits for requests under way; when ctx ends it cancels them
// and waits for their clean-up.
func (e *Engine) finishRequests(ctx context.Context) error {
	idle := make(chan struct{})
	go func() {
		e.inflight.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		e.abandon(ErrClosing)
		<-idle
		return fmt.Errorf("close engine: requests were cut off: %w", context.Cause(ctx))
	}
}

// leaveBoxes lets go of running VMs, or ends them.
func (e *Engine) leaveBoxes() {
	e.mu.Lock()
	var all []*box
	for _, b := range e.boxes {
		all = append(all, b)
	}
	e.mu.Unlock()
	each(len(all), 4*e.cfg.Concurrency, func(i int) {
		if e.cfg.KillOnClose {
			e.killBox(all[i])
			return
		}
		if m := all[i].m; m != nil {
			m.agent.Close()
			m.proc.Release()
		}
	})
}

// random returns n fresh random bytes.
func (e *Engine) random(n int) ([]byte, error) {
	b := make([]byte, n)
	e.randMu.Lock()
	defer e.randMu.Unlock()
	if _, err := io.ReadFull(e.cfg.Rand, b); err != nil {
		return nil, fmt.Errorf("read random bytes: %w", err)
	}
	return b, nil
}

// each runs f(0) to f(n-1), at most limit at once, and waits for all.
func each(n, limit int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, max(1, limit)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// raiseFileLimit makes room for three descriptors a sandbox and more. Without
// the right to raise it, the limit that there is has to do.
func raiseFileLimit() {
	const want = 1 << 17
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil || l.Cur >= want {
		return
	}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: want, Max: max(want, l.Max)}) != nil {
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: l.Max, Max: l.Max})
	}
}

var errNoVM = errors.New("its VM has ended")
