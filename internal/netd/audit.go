package netd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/netd/control"
)

// Bounds of the audit.
const (
	auditQueue    = 4096        // lines that wait to be written
	subscriberMax = 1024        // lines that wait for one subscriber
	auditFileMax  = 16 << 20    // bytes of the file, then it becomes FILE.1
	together      = time.Second // refusals alike within this are one line
	pendingMax    = 4096        // kinds of refusals that are being counted
)

// audit writes what became of flows. Whoever has a line for it never waits: what
// does not fit into its queue is counted as lost.
type audit struct {
	lines chan control.Line
	lost  atomic.Uint64
	done  chan struct{}
	stop  chan struct{}
	path  string
	warn  func(error)

	untold untold

	mu   sync.Mutex
	subs map[*subscriber]struct{}

	file    *os.File // owned by run, as what follows
	size    int64
	pending map[refusal]*control.Line
}

// refusal is what refusals of one kind have in common.
type refusal struct {
	vm, protocol, name, far, rule, verdict, reason string
}

func newAudit(path string, warn func(error)) (*audit, error) {
	a := &audit{
		lines: make(chan control.Line, auditQueue), done: make(chan struct{}), stop: make(chan struct{}),
		path: path, warn: warn, subs: map[*subscriber]struct{}{}, pending: map[refusal]*control.Line{},
	}
	a.untold.take() // which makes it anew
	if path != "" {
		if err := a.open(); err != nil {
			return nil, err
		}
	}
	go a.run()
	return a, nil
}

// add takes a line.
func (a *audit) add(l control.Line) {
	select {
	case a.lines <- l:
	default:
		a.lost.Add(1)
	}
}

// close writes what there is and waits for it.
func (a *audit) close() {
	close(a.stop)
	<-a.done
	if a.file != nil {
		a.file.Close()
	}
}

func (a *audit) run() {
	defer close(a.done)
	tick := time.NewTicker(together)
	defer tick.Stop()
	for {
		select {
		case l := <-a.lines:
			a.take(l)
		case now := <-tick.C:
			a.flush(now.Add(-together))
		case <-a.stop:
			for len(a.lines) > 0 {
				a.take(<-a.lines)
			}
			a.flush(time.Now())
			return
		}
	}
}

// take writes a line, or counts it when it is a refusal.
func (a *audit) take(l control.Line) {
	if l.Verdict == control.Allowed || l.Verdict == control.Cut || l.Verdict == control.Broken {
		a.write(l)
		return
	}
	k := kindOf(l)
	if p := a.pending[k]; p != nil {
		p.Count++
		return
	}
	if len(a.pending) >= pendingMax {
		a.flush(time.Now())
	}
	l.Count = 1
	a.pending[k] = &l
}

func kindOf(l control.Line) refusal {
	return refusal{l.VM, l.Protocol, l.Name, l.Far.String(), l.Rule, l.Verdict, l.Reason}
}

// flush writes the refusals that began before a time.
func (a *audit) flush(before time.Time) {
	for k, l := range a.pending {
		if l.Time.Before(before) {
			delete(a.pending, k)
			a.write(*l)
		}
	}
}

func (a *audit) write(l control.Line) {
	if a.file != nil {
		if err := a.append(l); err != nil {
			a.warn(fmt.Errorf("write audit: %w", err))
			a.lost.Add(1)
		}
	}
	a.untold.add(l)
	l = withoutDetail(l)
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.subs {
		s.offer(l)
	}
}

func (a *audit) append(l control.Line) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if a.size > auditFileMax {
		a.file.Close()
		if err := os.Rename(a.path, a.path+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := a.open(); err != nil {
			return err
		}
	}
	n, err := a.file.Write(append(b, '\n'))
	a.size += int64(n)
	return err
}

func (a *audit) open() error {
	f, err := os.OpenFile(a.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open audit: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("open audit: %w", err)
	}
	a.file, a.size = f, st.Size()
	return nil
}

// subscriber gets lines at its own speed.
type subscriber struct {
	vm    string // empty for all
	lines chan control.Line
	lost  uint64 // since the last line it got; guarded by audit.mu
}

// offer is called under audit.mu.
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

// subscribe calls send with each line, from a goroutine of its own, until cancel
// is called or send fails.
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
