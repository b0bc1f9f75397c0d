package admission

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/settings"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// Control decides whether the host has the resources for another VM. Its methods are safe for
// concurrent use.
type Control struct {
	host     settings.Host
	promised func() Promised
	bounds   bounds
	now      func() time.Time
	log      *slog.Logger

	// turn is held during an admission, while facts are read. Otherwise two requests could be
	// admitted for the same room. It is taken under no lock; the list's lock and mu are taken under
	// it.
	turn  sync.Mutex
	facts hostproc.Facts // guarded by turn, as are read and calm
	read  time.Time
	calm  string // last admission level in the log

	mu      sync.Mutex // guards the fields below; taken last
	pending Need       // sum of the grants; its number of VMs is Promised.VMs
}

// bounds holds the configured limits.
type bounds struct {
	memoryReserve, diskReserve       int64
	memoryOvercommit, diskOvercommit float64 // 0 means no limit
	pressure                         settings.Pressure
}

// New returns a Control. promised returns the sum promised to the running sandboxes; it may take
// the list's lock.
func New(c *settings.Config, promised func() Promised) *Control {
	a := &Control{host: c.Host, promised: promised, now: c.Now, log: c.Logger, calm: sandbox.AdmitsAll, bounds: bounds{
		memoryReserve: c.HostReserve, diskReserve: c.DiskReserve,
		memoryOvercommit: c.MemoryOvercommit, diskOvercommit: c.DiskOvercommit, pressure: *c.Pressure,
	}}
	if a.host == nil {
		group := ""
		if c.Groups != nil {
			group = c.Groups.Dir()
		}
		a.host = ThisHost(c.StoreDir, group, c.Now)
	}
	return a
}

// figuresAge is the maximum age of the host's figures. Reading them for each of many forks would
// cost too much (half a millisecond under emulation).
const figuresAge = 100 * time.Millisecond

// lookLocked reads the facts, if they are too old. The caller holds turn.
func (a *Control) lookLocked() error {
	now := a.now()
	if !a.read.IsZero() && now.Sub(a.read) <= figuresAge {
		return nil
	}
	f, err := a.host.Facts()
	if err != nil {
		return fmt.Errorf("what the host has: %w", err)
	}
	a.facts, a.read = f, now
	return nil
}

// Refresh makes the next request read the facts again.
func (a *Control) Refresh() {
	a.turn.Lock()
	defer a.turn.Unlock()
	a.read = time.Time{}
}

// Memory admits a use of memory without a VM. The memory is reserved until release is called.
func (a *Control) Memory(bytes int64) (release func(), err error) {
	g, err := a.admit(request{n: 1, each: Need{Memory: bytes}})
	if err != nil {
		return nil, err
	}
	return g.Release, nil
}

// VMs admits n VMs, or returns an error. ready is the number of them that exist already, as shells.
func (a *Control) VMs(n, ready int, each Need) (*Grant, error) {
	return a.admit(request{n: n, ready: min(ready, n), each: each, vms: true})
}

// VM admits one VM. Its resources are reserved until release is called.
func (a *Control) VM(need Need) (release func(), err error) {
	g, err := a.VMs(1, 0, need)
	if err != nil {
		return nil, err
	}
	return g.Release, nil
}

// Spare admits a VM made in advance. It refuses while the host is under pressure.
func (a *Control) Spare(need Need) (release func(), err error) {
	g, err := a.admit(request{n: 1, each: need, vms: true, spare: true})
	if err != nil {
		return nil, err
	}
	return g.Release, nil
}

// request is a request for admission.
type request struct {
	n, ready int
	each     Need
	vms      bool // for VMs, not only for memory
	spare    bool
}

// sum returns the total need. Ready shells already have their threads and descriptors.
func (r request) sum() Need {
	n, fresh := int64(r.n), int64(r.n-r.ready)
	return Need{Memory: n * r.each.Memory, Disk: n * r.each.Disk, Files: fresh * r.each.Files,
		Threads: fresh * r.each.Threads, Promised: r.each.Promised.times(r.n)}
}

func (a *Control) admit(r request) (*Grant, error) {
	a.turn.Lock()
	defer a.turn.Unlock()
	if err := a.lookLocked(); err != nil {
		return nil, err
	}
	fewer := false
	if r.vms {
		how := a.bounds.pressed(a.facts)
		a.tellLocked(how)
		if how.admits == sandbox.AdmitsNone || r.spare && how.admits == sandbox.AdmitsFewer {
			return nil, how.refusal()
		}
		fewer = how.admits == sandbox.AdmitsFewer
	}
	s := state{facts: a.facts, pending: a.Pending(), bounds: a.bounds}
	if r.each.Promised != (Promised{}) {
		s.promised = a.promised() // after pending: see the package comment
	}
	if err := s.check(r); err != nil {
		return nil, err
	}
	return a.grant(r, fewer), nil
}

// tellLocked logs when the host's pressure begins or stops to limit admission. The caller holds
// turn.
func (a *Control) tellLocked(how pressed) {
	if how.admits == a.calm {
		return
	}
	a.calm = how.admits
	if how.admits == sandbox.AdmitsAll {
		a.log.Info("the host is under no pressure any more: VMs are made as before")
		return
	}
	a.log.Warn("the host is under pressure", "vms_at_once", how.admits, "waiting_for", how.by.Name,
		"percent", how.by.Some, "fewer_from", how.by.Fewer, "none_from", how.by.None)
}

// Pending returns the sum of the resources admitted and not released yet.
func (a *Control) Pending() Need {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pending
}
