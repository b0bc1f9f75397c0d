package sandbox

// TreeLimits bound a tree: a root sandbox and all descendants forked by guests. Ended sandboxes do not count.
type TreeLimits struct {
	Size  int // sandboxes
	Depth int // forks from the root to the deepest sandbox
	// MemoryMiB bounds the sum of the sandboxes' memory sizes, as if each had written all of its memory.
	MemoryMiB int
}

// DefaultTree is a daemon's default limit.
var DefaultTree = TreeLimits{Size: 64, Depth: 4, MemoryMiB: 16 << 10}

// Kin is a sandbox's place in a tree. The zero value is in no tree.
type Kin struct {
	MayFork bool `json:"may_fork,omitempty"` // its guest may fork it
	// Identity lets its guest get identity tokens.
	Identity bool   `json:"identity,omitempty"`
	Parent   string `json:"parent,omitempty"` // sandbox whose guest forked it; empty if it was forked through the API
	Root     string `json:"root,omitempty"`   // root of its tree; empty if it is the root
	Token    string `json:"token,omitempty"`  // of the call that created it
	Depth    int    `json:"depth,omitempty"`  // forks from the root
	// Base is the number of layers in the root's disk when it was forked. They do not count for the tree.
	Base int `json:"base,omitempty"`
	// Key is the API key that created the root. The tree is charged to its quotas. If empty, there are no quotas.
	Key string `json:"key,omitempty"`
}

// RootOf returns the root of the tree. The id is the sandbox's with this kin.
func (k Kin) RootOf(id string) string {
	if k.Root == "" {
		return id
	}
	return k.Root
}

// Child returns the kin of a child. The id is the parent's.
func (k Kin) Child(id, token string) Kin {
	return Kin{MayFork: k.MayFork, Identity: k.Identity, Parent: id, Root: k.RootOf(id), Token: token, Depth: k.Depth + 1,
		Base: k.Base, Key: k.Key}
}

// TreeUsage counts a tree's running and pending sandboxes.
type TreeUsage struct{ Size, MemoryMiB int }

// Check returns an error if a sandbox may not create n children of memoryMiB each: ErrForbidden without leave to fork,
// ErrQuota beyond a limit.
func (l TreeLimits) Check(k Kin, now TreeUsage, n, memoryMiB int) error {
	switch {
	case !k.MayFork:
		return Errorf(ErrForbidden, "", "this sandbox cannot fork: it was made without guest_fork")
	case k.Depth+1 > l.Depth:
		return Errorf(ErrQuota, "", "this sandbox is %d forks below its root, the maximum depth is %d",
			k.Depth, l.Depth)
	case now.Size+n > l.Size:
		return Errorf(ErrQuota, "", "%d more would make a tree of %d sandboxes, the maximum is %d",
			n, now.Size+n, l.Size)
	case now.MemoryMiB+n*memoryMiB > l.MemoryMiB:
		return Errorf(ErrQuota, "",
			"%d more of %d MiB would make a tree of %d MiB of memory, the maximum is %d MiB",
			n, memoryMiB, now.MemoryMiB+n*memoryMiB, l.MemoryMiB)
	}
	return nil
}
