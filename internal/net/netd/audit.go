package netd

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/net/netd/control"
)

// Limits of the audit.
const (
	auditQueue    = 4096        // lines waiting to be written
	subscriberMax = 1024        // lines waiting for one subscriber
	together      = time.Second // identical refusals within this time become one line
)

// audit writes the results of flows. Callers of add never wait: if the queue is full, the line
// counts as lost. If a VM exceeds its limits, its lines are only counted, so it does not use up the
// room of others.
type audit struct {
	lines chan control.Line
	lost  atomic.Uint64
	done  chan struct{}
	stop  chan struct{}
	warn  func(error)

	unreported unreported
	bounds     *vmBounds

	mu   sync.Mutex
	subs map[*subscriber]struct{}

	files *logFiles // used by run; nil if lines are not written to files
}

// refusal is the common part of refusals of one kind.
type refusal struct {
	vm, protocol, name, far, rule, verdict, reason string
}

func newAudit(path string, warn func(error)) (*audit, error) {
	a := &audit{
		lines: make(chan control.Line, auditQueue), done: make(chan struct{}), stop: make(chan struct{}),
		warn: warn, subs: map[*subscriber]struct{}{}, bounds: newVMBounds(),
	}
	a.unreported.take() // initializes the maps
	if path != "" {
		var err error
		if a.files, err = openLogFiles(path, auditFileMax); err != nil {
			return nil, err
		}
	}
	go a.run()
	return a, nil
}

// add adds a line. Refusals wait to be counted, and so do lines of a VM that exceeds its rate.
func (a *audit) add(l control.Line) {
	if a.bounds.count(l) {
		return
	}
	select {
	case a.lines <- l:
	default:
		a.lost.Add(1)
	}
}

// close writes all lines and waits until this is done.
func (a *audit) close() {
	close(a.stop)
	<-a.done
	a.files.close()
}

func (a *audit) run() {
	defer close(a.done)
	tick := time.NewTicker(together)
	defer tick.Stop()
	for {
		select {
		case l := <-a.lines:
			a.write(l)
		case now := <-tick.C:
			a.flush(now, false)
		case <-a.stop:
			for len(a.lines) > 0 {
				a.write(<-a.lines)
			}
			a.flush(time.Now(), true)
			return
		}
	}
}

func kindOf(l control.Line) refusal {
	return refusal{l.VM, l.Protocol, l.Name, l.Far.String(), l.Rule, l.Verdict, l.Reason}
}

// flush writes the lines that were counted long enough, or all lines.
func (a *audit) flush(now time.Time, all bool) {
	for _, l := range a.bounds.take(now, all) {
		a.write(l)
	}
}

func (a *audit) write(l control.Line) {
	if a.files != nil {
		if err := a.files.write(l); err != nil {
			a.warn(fmt.Errorf("write audit: %w", err))
			a.lost.Add(1)
		}
	}
	a.unreported.add(l)
	l = withoutDetail(l)
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.subs {
		s.offer(l)
	}
}

// subscriber receives lines at its own speed.
type subscriber struct {
	vm    string // empty for all VMs
	lines chan control.Line
	lost  uint64 // since the last received line; guarded by audit.mu
}

// offer queues a line, or counts it as lost. The caller holds audit.mu.
func (s *subscriber) offer(l control.Line) {
	if s.vm != "" && s.vm != l.VM {
		return
	}
	l.Lost = s.lost
	select {
	case s.lines <- l:
		s.lost = 0
	default:
		s.lost++
	}
}

// subscribe calls send with each line, from a separate goroutine, until cancel is called or send
// fails.
func (a *audit) subscribe(vm string, send func(control.Line) error) (cancel func()) {
	s := &subscriber{vm: vm, lines: make(chan control.Line, subscriberMax)}
	stop, done := make(chan struct{}), make(chan struct{})
	a.mu.Lock()
	a.subs[s] = struct{}{}
	a.mu.Unlock()
	go func() {
		defer close(done)
		defer a.unsubscribe(s)
		for {
			select {
			case l := <-s.lines:
				if send(l) != nil {
					return
				}
			case <-stop:
				return
			}
		}
	}()
	return sync.OnceFunc(func() { close(stop); <-done })
}

func (a *audit) unsubscribe(s *subscriber) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.subs, s)
}
