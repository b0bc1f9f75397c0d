package audit

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxTenants limits the tenants with a chain of their own. All other tenants share one.
const maxTenants = 256

// sharedTenant names the chains of tenants beyond maxTenants. Names of tenants have no capitals.
const sharedTenant = "OTHERS"

// Sizes of all chains except the first, as fractions of it.
const (
	tenantShare = 4
	minBytes    = 64 << 10
	tenantQueue = 1024
)

// Log is an audit log with one chain per writer. Its methods are safe for concurrent use. Add never waits.
type Log struct {
	cfg     Config
	single  bool                // a pipe or a terminal, with one chain only
	sampled map[string]*sampler // by chain; other chains are written line by line
	stop    chan struct{}
	done    chan struct{}
	once    sync.Once
	ended   chan struct{} // is closed when all chains are
	sealing chan struct{} // is closed when seals are no longer written

	mu      sync.Mutex // no I/O under it
	chains  map[string]*chainLog
	tenants map[string]bool
	closed  bool
}

// Open opens a log and starts to write. Close ends it.
func Open(c Config) (*Log, error) {
	first, err := openChain(c)
	if err != nil {
		return nil, err
	}
	l := &Log{cfg: first.cfg, single: !first.w.regular,
		stop: make(chan struct{}), done: make(chan struct{}), ended: make(chan struct{}), sealing: make(chan struct{}),
		chains: map[string]*chainLog{"": first}, tenants: map[string]bool{},
		sampled: map[string]*sampler{chainAnonymous: newSampler(maxAnonymous), chainTraffic: newSampler(maxTraffic)}}
	go l.run()
	go l.seal()
	return l, nil
}

// Path returns the newest file of the first chain.
func (l *Log) Path() string { return l.cfg.Path }

// Add writes an entry to its writer's chain. If the chain's queue is full, the entry is lost and counted.
func (l *Log) Add(e Entry) {
	if e.Time.IsZero() {
		e.Time = l.cfg.Now()
	}
	name := chainOf(e)
	if s := l.sampled[name]; s != nil {
		source := e.Source
		if name == chainTraffic {
			source = e.Sandbox
		}
		if !s.take(source, *e.clipped()) {
			return
		}
	}
	l.add(name, e)
}

func (l *Log) add(name string, e Entry) {
	if c := l.chain(name, e.Tenant); c != nil {
		c.Add(e)
	}
}

// chain returns a chain, and starts it if it is new. It returns nil once the log is closed.
func (l *Log) chain(name, tenant string) *chainLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.chains[""]
	if name == "" || l.single {
		return first
	}
	if c := l.chains[name]; c != nil {
		return c
	}
	if tenant != "" && !l.tenants[tenant] {
		if len(l.tenants) >= maxTenants {
			return l.startLocked(sharedName(name))
		}
		l.tenants[tenant] = true
	}
	return l.startLocked(name)
}

func (l *Log) startLocked(name string) *chainLog {
	if c := l.chains[name]; c != nil || l.closed {
		return c
	}
	c := l.cfg
	c.chain, c.Path, c.tick, c.fresh = name, pathOf(c.Path, name), nil, l.began
	if name != chainActivity && name != chainAnonymous && name != chainTraffic {
		c.MaxBytes = max(c.MaxBytes/tenantShare, min(minBytes, c.MaxBytes))
	}
	c.queue = min(c.queue, tenantQueue)
	l.chains[name] = startChain(c)
	return l.chains[name]
}

// began records a new chain in the first chain, so that a verification notices if it is removed.
func (l *Log) began(name string) {
	l.add("", Entry{Time: l.cfg.Now(), Action: ActionChain, Result: OK, Read: true,
		File: baseOf(pathOf(l.cfg.Path, name)), Note: name})
}

// sharedName returns the shared chain of a tenant beyond maxTenants.
func sharedName(name string) string {
	if onlyChanges(name) {
		return chainTenant + sharedTenant
	}
	return chainTenant + sharedTenant + dotActivity
}

// Stats returns the sums over all chains.
func (l *Log) Stats() (sum Stats) {
	for _, c := range l.all() {
		s := c.Stats()
		sum.Written, sum.Lost, sum.Queued = sum.Written+s.Written, sum.Lost+s.Lost, sum.Queued+s.Queued
	}
	return sum
}

// Reopen makes each chain check immediately whether its path refers to another file, and open that file. Without
// Reopen, chains check within a second.
func (l *Log) Reopen() {
	for _, c := range l.all() {
		select {
		case c.poke <- struct{}{}:
		default: // a check is already pending
		}
	}
}

func (l *Log) all() (all []*chainLog) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.chains {
		all = append(all, c)
	}
	return all
}

// Close writes all entries. It waits for the disk for at most patience.
func (l *Log) Close(patience time.Duration) error {
	end := time.Now().Add(patience)
	l.once.Do(func() { close(l.stop) })
	<-l.done
	l.mu.Lock()
	again := l.closed
	l.closed = true
	l.mu.Unlock()
	var errs []error
	first := l.chains[""]
	for _, c := range l.all() {
		if c != first {
			errs = append(errs, c.Close(time.Until(end)))
		}
	}
	errs = append(errs, first.Close(time.Until(end))) // last, because it records the other chains
	if !again {
		close(l.ended)
	}
	select {
	case <-l.sealing:
	case <-time.After(max(0, time.Until(end))):
		errs = append(errs, errors.New("the audit log's disk does not answer: its last lines are not sealed"))
	}
	return errors.Join(errs...)
}

// seal seals the chains until they are closed, and then once more. A disk that hangs stops only the seals.
func (l *Log) seal() {
	defer close(l.sealing)
	if l.single {
		return
	}
	s := newSealer(l.cfg)
	defer s.close()
	tick := time.NewTicker(sealEvery)
	defer tick.Stop()
	for open := true; open; {
		select {
		case <-tick.C:
		case <-l.ended:
			open = false
		}
		s.seal(l.heads())
	}
}

// heads returns the durable heads of all chains, by name.
func (l *Log) heads() (heads []Head) {
	for _, c := range l.all() {
		heads = append(heads, c.Head())
	}
	slices.SortFunc(heads, func(a, b Head) int { return strings.Compare(a.Chain, b.Chain) })
	return heads
}

// run writes the lines collected by the samplers.
func (l *Log) run() {
	defer close(l.done)
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.flush()
		case <-l.stop:
			l.flush()
			return
		}
	}
}

func (l *Log) flush() {
	for name, s := range l.sampled {
		for _, e := range s.flush() {
			l.add(name, e)
		}
	}
}
