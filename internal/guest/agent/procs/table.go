package procs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agent/broken"
	"github.com/forkd/forkd/internal/guest/agent/defaults"
	"github.com/forkd/forkd/internal/guest/agent/oomlog"
	"github.com/forkd/forkd/internal/guest/agent/procgroup"
	"github.com/forkd/forkd/internal/guest/agent/reap"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
)

const (
	// keepEnded and keepEndedMax limit for how long, and how many, ended processes accept
	// connections to report their end.
	keepEnded    = 30 * time.Second
	keepEndedMax = 64
)

// errStopping is the error for callers while the table closes.
var errStopping = errors.New("the agent is stopping")

// Table holds all commands of this guest.
type Table struct {
	reaper *reap.Reaper
	groups *procgroup.Groups
	rec    *defaults.Record
	log    func(format string, args ...any)
	broken broken.Files // explains a program that does not start
	oom    *oomlog.Log
	gate   *sync.RWMutex // read-locked from reading output until it is published

	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	// all holds a process until its output is no longer read, possibly after its end.
	all    map[*Process][]output
	drains []*os.File // outputs of an earlier program's commands, discarded
	// past is ordered by time. No timer cleans it up, because that would wake an idle guest.
	past []ended
}

type ended struct {
	at time.Time
	p  *Process
}

// NewTable returns an empty table. The reaper must be running. files explains programs that do not
// start. Whoever locks gate keeps output in the kernel.
func NewTable(r *reap.Reaper, g *procgroup.Groups, rec *defaults.Record, files broken.Files,
	gate *sync.RWMutex, log func(string, ...any)) *Table {
	return &Table{reaper: r, groups: g, rec: rec, log: log, broken: files, gate: gate,
		oom: oomlog.Open("/dev/kmsg"), all: map[*Process][]output{}}
}

// Count returns the number of running commands.
func (t *Table) Count() int { return len(t.list()) }

// Close kills every command with its descendants and waits for them. The server must have removed
// all subscribers before.
func (t *Table) Close() error {
	t.mu.Lock()
	t.closed = true
	all := maps.Clone(t.all)
	for _, f := range t.drains {
		_ = f.SetReadDeadline(time.Now())
	}
	t.mu.Unlock()
	for p, outs := range all {
		p.stop(outs)
	}
	t.running.Wait()
	t.oom.Close()
	return nil
}

// list returns live processes, oldest first.
func (t *Table) list() []*process.ProcessInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*process.ProcessInfo, 0, len(t.all))
	for p := range t.all {
		if !p.hasEnded() {
			out = append(out, p.info)
		}
	}
	slices.SortFunc(out, func(a, b *process.ProcessInfo) int { return cmp.Compare(a.GetPid(), b.GetPid()) })
	return out
}

// find returns a process that is live or has recently ended. It prefers a live one.
func (t *Table) find(sel *process.ProcessSelector) (*Process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	match := selects(sel)
	var found *Process // an ended process is in all until it is in past
	for p := range t.all {
		if match(p.info) && (found == nil || !p.hasEnded()) {
			found = p
		}
	}
	if found != nil {
		return found, nil
	}
	t.forgetLocked()
	for _, e := range slices.Backward(t.past) {
		if match(e.p.info) {
			return e.p, nil
		}
	}
	return nil, notFound(sel)
}

// findLive returns a process that has not ended.
func (t *Table) findLive(sel *process.ProcessSelector) (*Process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	match := selects(sel)
	for p := range t.all {
		if match(p.info) && !p.hasEnded() {
			return p, nil
		}
	}
	return nil, notFound(sel)
}

func notFound(sel *process.ProcessSelector) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("process with %s not found", describe(sel)))
}

func selects(sel *process.ProcessSelector) func(*process.ProcessInfo) bool {
	switch s := sel.GetSelector().(type) {
	case *process.ProcessSelector_Pid:
		return func(i *process.ProcessInfo) bool { return i.GetPid() == s.Pid }
	case *process.ProcessSelector_Tag:
		return func(i *process.ProcessInfo) bool { return i.Tag != nil && i.GetTag() == s.Tag }
	}
	return func(*process.ProcessInfo) bool { return false }
}

func describe(sel *process.ProcessSelector) string {
	switch s := sel.GetSelector().(type) {
	case *process.ProcessSelector_Pid:
		return fmt.Sprintf("pid %d", s.Pid)
	case *process.ProcessSelector_Tag:
		return fmt.Sprintf("tag %q", s.Tag)
	}
	return "no selector"
}

// add adds a started process and carries its output. The deadline, if any, ends it even without a
// caller.
func (t *Table) add(ctx context.Context, p *Process, outs []output) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		p.killTree()
		t.running.Go(func() { p.run(outs) })
		return connect.NewError(connect.CodeUnavailable, errStopping)
	}
	p.limit, _ = ctx.Deadline()
	t.carryLocked(p, outs)
	return nil
}

// carryLocked carries the output of a process from now on.
func (t *Table) carryLocked(p *Process, outs []output) {
	t.all[p] = outs
	var limit *time.Timer
	if !p.limit.IsZero() {
		limit = time.AfterFunc(time.Until(p.limit), p.killTree)
	}
	buried := make(chan struct{})
	t.running.Go(func() {
		defer close(buried)
		<-p.ended
		if limit != nil {
			limit.Stop()
		}
		t.bury(p)
	})
	t.running.Go(func() {
		p.run(outs)
		<-buried // so that find always sees it in one of the two
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.all, p)
	})
}

// bury keeps an ended process for a while.
func (t *Table) bury(p *Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.past = append(t.past, ended{time.Now(), p})
	t.forgetLocked()
}

func (t *Table) forgetLocked() {
	drop := max(0, len(t.past)-keepEndedMax)
	for drop < len(t.past) && time.Since(t.past[drop].at) > keepEnded {
		drop++
	}
	t.past = slices.Delete(t.past, 0, drop)
}
