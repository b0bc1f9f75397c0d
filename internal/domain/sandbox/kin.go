package sandbox

import "github.com/forkd/forkd/internal/guest/agentproto/forkwire"

// TreeLimits bound a tree: the sandboxes that descend from one by forks in guests,
// that one included. Those that have ended do not count.
type TreeLimits struct {
	Size  int // sandboxes
	Depth int // forks from the root to the deepest
	// MemoryMiB bounds the sum of the sandboxes' memory sizes: what they would
	// hold if each wrote all of its own.
	MemoryMiB int
}

// DefaultTree is what a daemon allows unless it is told otherwise.
var DefaultTree = TreeLimits{Size: 64, Depth: 4, MemoryMiB: 16 << 10}

// Kin is a sandbox's place in a tree. The zero value is outside of all.
type Kin struct {
	MayFork bool   `json:"may_fork,omitempty"` // its guest may fork it
	Parent  string `json:"parent,omitempty"`   // sandbox whose guest forked it; empty: it was forked through the API
	Root    string `json:"root,omitempty"`     // of its tree; empty: itself
	Token   string `json:"token,omitempty"`    // of the call that made it
	Depth   int    `json:"depth,omitempty"`    // forks from the root
	// Base is how many layers the disk of the root had when it was forked: those are not the tree's.
	Base int `json:"base,omitempty"`
	// Key is the API key that the root was made with, whose quotas are the whole tree's; empty: there are none.
	Key string `json:"key,omitempty"`
}

// RootOf is the root of the tree that the sandbox of that id and kin is in.
func (k Kin) RootOf(id string) string {
	if k.Root == "" {
		return id
	}
	return k.Root
}

// Child is the kin of a child that the sandbox of that id makes.
func (k Kin) Child(id, token string) Kin {
	return Kin{MayFork: k.MayFork, Parent: id, Root: k.RootOf(id), Token: token, Depth: k.Depth + 1,
		Base: k.Base, Key: k.Key}
}

// Census is what of a tree runs, or is about to.
type Census struct{ Size, MemoryMiB int }

// Check says whether a sandbox may make n children of memoryMiB each.
func (l TreeLimits) Check(k Kin, now Census, n, memoryMiB int) error {
	switch {
	case !k.MayFork:
		return forkwire.Errorf(forkwire.Denied, "this sandbox may not fork: it was made without guest_fork")
	case k.Depth+1 > l.Depth:
		return forkwire.Errorf(forkwire.Limit, "this sandbox is %d forks below its root, and no tree may be deeper than %d",
			k.Depth, l.Depth)
	case now.Size+n > l.Size:
		return forkwire.Errorf(forkwire.Limit, "%d more would make a tree of %d sandboxes, and no tree may have more than %d",
			n, now.Size+n, l.Size)
	case now.MemoryMiB+n*memoryMiB > l.MemoryMiB:
		return forkwire.Errorf(forkwire.Limit,
			"%d more of %d MiB would make a tree of %d MiB of memory, and no tree may have more than %d MiB",
			n, memoryMiB, now.MemoryMiB+n*memoryMiB, l.MemoryMiB)
	}
	return nil
}
