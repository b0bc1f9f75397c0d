package netpolicy

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

// Bounds of facts.
const (
	// MinTTL is how long a fact holds at least, whatever the answer said: an answer with TTL 0
	// must not expire before its connect.
	MinTTL = 60 * time.Second
	// MaxFacts is how many facts a sandbox has of its own. The one used longest ago makes room.
	MaxFacts = 4096
	// maxNames is how many names an address has: what one verdict may have to look at.
	maxNames = 32
)

// Facts are the names that a sandbox's addresses are attested to have, because our own
// resolver told the guest so. They hold for every port; rules narrow that. The zero value is
// empty and ready. Facts are safe for concurrent use; a nil *Facts is empty
// and stays so.
type Facts struct {
	mu        sync.Mutex
	own       map[fact]*list.Element // of recent
	byAddr    map[netip.Addr][]string
	recent    *list.List      // of attested, the one used last in front
	inherited *inheritedFacts // nil for none; never changes
}

type fact struct {
	name string
	addr netip.Addr
}

type attested struct {
	fact
	expires time.Time
}

// inheritedFacts are shared by a source and its clones, and never change.
type inheritedFacts struct {
	byAddr map[netip.Addr][]attested
	n      int
}

// Add notes that a canonical name has an address. The fact holds for ttl, or for MinTTL if
// that is longer. A fact that is known already only lasts longer.
func (f *Facts) Add(name string, addr netip.Addr, ttl time.Duration, now time.Time) {
	if f == nil {
		return
	}
	k := fact{name, Unwrap(addr)}
	expires := now.Add(max(ttl, MinTTL))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.own == nil {
		f.own, f.byAddr, f.recent = map[fact]*list.Element{}, map[netip.Addr][]string{}, list.New()
	}
	if e := f.own[k]; e != nil {
		a := e.Value.(*attested)
		if expires.After(a.expires) {
			a.expires = expires
		}
		f.recent.MoveToFront(e)
		return
	}
	if names := f.byAddr[k.addr]; len(names) >= maxNames {
		f.removeLocked(f.own[fact{names[0], k.addr}])
	}
	if len(f.own) >= MaxFacts {
		f.removeLocked(f.recent.Back())
	}
	f.own[k] = f.recent.PushFront(&attested{k, expires})
	f.byAddr[k.addr] = append(f.byAddr[k.addr], name)
}

func (f *Facts) removeLocked(e *list.Element) {
	k := e.Value.(*attested).fact
	f.recent.Remove(e)
	delete(f.own, k)
	names := f.byAddr[k.addr]
	for i, n := range names {
		if n == k.name {
			names = append(names[:i], names[i+1:]...)
			break
		}
	}
	if len(names) == 0 {
		delete(f.byAddr, k.addr)
		return
	}
	f.byAddr[k.addr] = names
}

// Names appends to dst the names that an address is attested to have.
func (f *Facts) Names(dst []string, addr netip.Addr, now time.Time) []string {
	if f == nil {
		return dst
	}
	addr = Unwrap(addr)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range f.byAddr[addr] {
		e := f.own[fact{name, addr}]
		if e.Value.(*attested).expires.After(now) {
			f.recent.MoveToFront(e)
			dst = append(dst, name)
		}
	}
	if f.inherited == nil {
		return dst
	}
	for _, a := range f.inherited.byAddr[addr] {
		if a.expires.After(now) {
			dst = append(dst, a.name)
		}
	}
	return dst
}

// Has reports whether an address is attested to have a canonical name.
func (f *Facts) Has(name string, addr netip.Addr, now time.Time) bool {
	var room [maxNames]string
	for _, n := range f.Names(room[:0], addr, now) {
		if n == name {
			return true
		}
	}
	return false
}

// Len is how many facts are held, expired and inherited ones among them.
func (f *Facts) Len() int {
	if f == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.own)
	if f.inherited != nil {
		n += f.inherited.n
	}
	return n
}

// Clone is what a clone begins with: all that f knows now, and nothing that either learns
// later. Clones of one moment share what they inherit.
func (f *Facts) Clone(now time.Time) *Facts {
	if f == nil {
		return &Facts{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.own) > 0 {
		f.inherited = f.mergeLocked(now)
		f.own, f.byAddr, f.recent = nil, nil, nil
	}
	return &Facts{inherited: f.inherited}
}

// mergeLocked makes one set of all facts that hold still; what is inherited makes room for
// what is newer.
func (f *Facts) mergeLocked(now time.Time) *inheritedFacts {
	all := &inheritedFacts{byAddr: map[netip.Addr][]attested{}}
	add := func(a attested) {
		if all.n < MaxFacts && a.expires.After(now) && len(all.byAddr[a.addr]) < maxNames {
			all.byAddr[a.addr] = append(all.byAddr[a.addr], a)
			all.n++
		}
	}
	for e := f.recent.Front(); e != nil; e = e.Next() {
		add(*e.Value.(*attested))
	}
	if f.inherited == nil {
		return all
	}
	for _, list := range f.inherited.byAddr {
		for _, a := range list {
			if e := f.own[a.fact]; e == nil || a.expires.After(e.Value.(*attested).expires) {
				add(a)
			}
		}
	}
	return all
}
