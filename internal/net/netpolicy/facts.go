package netpolicy

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

// Limits of facts.
const (
	// MinTTL is the minimum time for which a fact is valid, whatever the answer's TTL. After an
	// answer with TTL 0, the fact must not expire before the guest connects.
	MinTTL = 60 * time.Second
	// MaxFacts limits the own facts of a sandbox. The least recently used fact is dropped first.
	MaxFacts = 4096
	// maxNames limits the names of an address, and so the work for one verdict.
	maxNames = 32
)

// Facts stores which names the addresses of a sandbox have, as answered by our own resolver to the
// guest. Facts apply to every port; rules narrow that. The zero value is empty and ready to use.
// Facts are safe for concurrent use. A nil *Facts is empty and stays empty.
type Facts struct {
	mu        sync.Mutex
	own       map[fact]*list.Element // elements of recent
	byAddr    map[netip.Addr][]string
	recent    *list.List      // of attested, most recently used first
	inherited *inheritedFacts // may be nil; never changes
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

// Add records that a canonical name has an address. The fact is valid for ttl, but at least for
// MinTTL. Adding a known fact only extends its validity.
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

// Names appends to dst the recorded names of an address.
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

// Has reports whether a canonical name is recorded for an address.
func (f *Facts) Has(name string, addr netip.Addr, now time.Time) bool {
	var room [maxNames]string
	for _, n := range f.Names(room[:0], addr, now) {
		if n == name {
			return true
		}
	}
	return false
}

// Len returns the number of facts, including expired and inherited ones.
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

// Clone returns the facts for a clone: all current facts of f, without later ones of either side.
// Clones made at the same time share their inherited facts.
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

// mergeLocked merges all valid facts into one set. Newer facts take precedence over inherited ones.
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
