package guestdiff

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/guestdelta"
)

// processKey identifies a process over the lifetime of a guest.
type processKey struct {
	pid   uint32
	start uint64
}

// key treats the first process as the same in every guest: it represents the guest itself.
func key(p *agentv1.InventoryProcess) processKey {
	if p.Pid == 1 {
		return processKey{pid: 1}
	}
	return processKey{p.Pid, p.StartTicks}
}

// process is a process and its key.
type process struct {
	key processKey
	guestdelta.Process
}

func (c *comparison) processes() {
	d := &c.diff.Processes
	before := map[processKey]guestdelta.Process{}
	for _, p := range c.a.processes {
		before[p.key] = p.Process
	}
	var changed []guestdelta.ProcessChange
	for _, p := range c.b.processes {
		old, same := before[p.key]
		delete(before, p.key)
		switch {
		case !same:
			d.Counts.Added++
			d.Started = keep(c, d.Started, p.Process)
		case old.Memory != p.Memory:
			changed = append(changed, guestdelta.ProcessChange{Process: p.Process, Before: old.Memory})
		}
	}
	for _, p := range c.a.processes {
		if _, left := before[p.key]; left {
			delete(before, p.key)
			d.Counts.Removed++
			d.Ended = keep(c, d.Ended, p.Process)
		}
	}
	// Largest changes first: nearly every process changes a little.
	slices.SortStableFunc(changed, func(a, b guestdelta.ProcessChange) int { return cmp.Compare(grown(b), grown(a)) })
	d.Counts.Changed = len(changed)
	d.Changed = changed[:min(len(changed), c.limit)]
}

// grown returns the absolute change of private memory.
func grown(p guestdelta.ProcessChange) int64 {
	n := p.Memory.Anon - p.Before.Anon
	return max(n, -n)
}

func processOf(p *agentv1.InventoryProcess) guestdelta.Process {
	out := guestdelta.Process{PID: int(p.Pid), PPID: int(p.Ppid), UID: p.Uid, Name: text(p.Name, maxText),
		Memory: memoryOf(p)}
	for arg := range bytes.SplitSeq(p.Args, []byte{0}) {
		out.Args = append(out.Args, text(arg, maxText))
	}
	return out
}

func memoryOf(p *agentv1.InventoryProcess) guestdelta.Memory {
	return guestdelta.Memory{RSS: kib(p.RssKib), PSS: kib(p.PssKib), Anon: kib(p.AnonKib)}
}

// kib limits a size, so sums and differences do not overflow.
func kib(n uint64) int64 { return int64(min(n, 1<<50)) }

// packageKey identifies a package: the same name may be installed for several architectures.
type packageKey struct{ name, architecture string }

func keyOf(p guestdelta.Package) packageKey { return packageKey{p.Name, p.Architecture} }

func (c *comparison) packages() {
	d := &c.diff.Packages
	before := map[packageKey]guestdelta.Package{}
	for _, p := range c.a.packages {
		before[keyOf(p)] = p
	}
	for _, p := range c.b.packages {
		old, same := before[keyOf(p)]
		delete(before, keyOf(p))
		switch {
		case !same:
			d.Counts.Added++
			d.Added = keep(c, d.Added, p)
		case old.Version != p.Version:
			d.Counts.Changed++
			d.Changed = keep(c, d.Changed, guestdelta.PackageChange{Package: p, Before: old.Version})
		}
	}
	for _, p := range c.a.packages {
		if _, left := before[keyOf(p)]; left {
			delete(before, keyOf(p))
			d.Counts.Removed++
			d.Removed = keep(c, d.Removed, p)
		}
	}
}
