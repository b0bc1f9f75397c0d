package admission

import "sync"

// Grant holds resources admitted together. The caller must call Release.
type Grant struct {
	from  *Control
	left  Need // guarded by from.mu
	each  Need // an equal part
	fewer bool
}

func (a *Control) grant(r request, fewer bool) *Grant {
	g := &Grant{from: a, left: r.sum(), each: r.each, fewer: fewer}
	if r.n > 0 { // which children get ready shells is not known
		g.each.Files, g.each.Threads = g.left.Files/int64(r.n), g.left.Threads/int64(r.n)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending = plus(a.pending, g.left, 1)
	return g
}

// One returns a function that releases one VM's part, once. It is called when the VM is listed or
// was not made.
func (g *Grant) One() (release func()) {
	return sync.OnceFunc(func() { g.give(g.each) })
}

// Release releases the rest.
func (g *Grant) Release() {
	g.from.mu.Lock()
	defer g.from.mu.Unlock()
	g.giveLocked(g.left)
}

func (g *Grant) give(n Need) {
	g.from.mu.Lock()
	defer g.from.mu.Unlock()
	if g.left != (Need{}) { // otherwise all of it is released
		g.giveLocked(n)
	}
}

func (g *Grant) giveLocked(n Need) {
	g.left = plus(g.left, n, -1)
	g.from.pending = plus(g.from.pending, n, -1)
}

func plus(a, b Need, sign int64) Need {
	return Need{Memory: a.Memory + sign*b.Memory, Disk: a.Disk + sign*b.Disk, Files: a.Files + sign*b.Files,
		Threads: a.Threads + sign*b.Threads, Promised: a.Promised.Add(b.Promised.times(int(sign)))}
}

// AtOnce returns how many VMs to make concurrently. otherwise is the number for a host without
// pressure.
func (g *Grant) AtOnce(otherwise int) int {
	if g.fewer {
		return max(1, otherwise/4)
	}
	return otherwise
}
