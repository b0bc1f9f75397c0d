package admission

import "sync"

// Grant is what was admitted together. Release must be called.
type Grant struct {
	from  *Control
	left  Need // guarded by from.mu
	each  Need // an equal part
	fewer bool
}

func (a *Control) grant(r request, fewer bool) *Grant {
	g := &Grant{from: a, left: r.sum(), each: r.each, fewer: fewer}
	if r.n > 0 { // of shells that are ready nobody knows which child gets one
		g.each.Files, g.each.Threads = g.left.Files/int64(r.n), g.left.Threads/int64(r.n)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending = plus(a.pending, g.left, 1)
	return g
}

// One releases one VM's part, when it is listed or was not made. It does so once.
func (g *Grant) One() (release func()) {
	return sync.OnceFunc(func() { g.give(g.each) })
}

// Release releases what is left.
func (g *Grant) Release() {
	g.from.mu.Lock()
	defer g.from.mu.Unlock()
	g.giveLocked(g.left)
}

func (g *Grant) give(n Need) {
	g.from.mu.Lock()
	defer g.from.mu.Unlock()
	if g.left != (Need{}) { // else all of it is released
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

// AtOnce is how many VMs are made at once where it would be so many on a host without pressure.
func (g *Grant) AtOnce(otherwise int) int {
	if g.fewer {
		return max(1, otherwise/4)
	}
	return otherwise
}
