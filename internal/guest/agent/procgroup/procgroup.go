// Package procgroup keeps a command and all its descendants together, so that all can be killed. It
// uses one control group (version 2) per command where the system has them, otherwise a walk over
// /proc. Only the control group contains a process that forks twice and starts its own session; the
// walk finds descendants and members of the session.
package procgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/filelock"
)

// Groups creates groups below one directory of the cgroup file system.
type Groups struct {
	root string   // empty if there are no control groups
	lock *os.File // on root, held while this agent lives; nil if another agent holds it

	mu   sync.Mutex
	next int
	// left holds directories with members that outlived the command.
	left []string
}

// Group is one command's group.
type Group struct {
	parent *Groups
	dir    string
	fd     *os.File
}

// Open uses a directory called name in mount (normally /sys/fs/cgroup) if mount is a writable
// cgroup2 file system. Otherwise groups are walks over /proc.
func Open(mount, name string) *Groups { return open(mount, name, nil) }

// Saved is the state of Groups for a later program of this process. Names are those of directories.
type Saved struct {
	Next int      `json:"next"` // number of the last group
	Live []string `json:"live"` // groups in use
	Left []string `json:"left"` // groups with members that outlived their command
}

// Reopen is like Open, for a program that takes over the groups of an earlier one. The processes of
// other groups end.
func Reopen(mount, name string, s Saved) *Groups { return open(mount, name, &s) }

func open(mount, name string, s *Saved) *Groups {
	var st unix.Statfs_t
	if err := unix.Statfs(mount, &st); err != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
		return &Groups{}
	}
	root := filepath.Join(mount, name)
	if err := os.Mkdir(root, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return &Groups{}
	}
	if _, err := os.Stat(filepath.Join(root, "cgroup.kill")); err != nil {
		return &Groups{} // before Linux 5.14
	}
	g := &Groups{root: root}
	if s == nil {
		s = &Saved{}
	}
	g.next = max(s.Next, 0)
	g.inherit(*s)
	return g
}

// Save returns the state for a later program, which adopts the groups of live. Name returns their
// names.
func (g *Groups) Save(live []string) Saved {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Saved{Next: g.next, Live: live}
	for _, dir := range g.left {
		s.Left = append(s.Left, filepath.Base(dir))
	}
	return s
}

// Adopt returns a group of an earlier program by its name, or nil for no name.
func (g *Groups) Adopt(name string) (*Group, error) {
	if name == "" || g.root == "" {
		return nil, nil
	}
	if filepath.Base(name) != name || !strings.HasPrefix(name, "p") {
		return nil, fmt.Errorf("control group %.40q is not of an agent", name)
	}
	dir := filepath.Join(g.root, name)
	fd, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open control group: %w", err)
	}
	return &Group{parent: g, dir: dir, fd: fd}, nil
}

// Name returns the name of the group, for Adopt. g may be nil.
func (g *Group) Name() string {
	if g == nil {
		return ""
	}
	return filepath.Base(g.dir)
}

// inherit ends the processes of a killed agent and removes its groups, because no other process can
// end them. It does not touch the groups of an agent that is still running, and groups in s.
func (g *Groups) inherit(s Saved) {
	dir, err := os.Open(g.root)
	if err != nil {
		return
	}
	if err := filelock.Try(dir); err != nil {
		dir.Close()
		return
	}
	g.lock = dir
	left, _ := filepath.Glob(filepath.Join(g.root, "p*"))
	for _, dir := range left {
		name := filepath.Base(dir)
		if slices.Contains(s.Live, name) {
			continue
		}
		if !slices.Contains(s.Left, name) {
			_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
		}
		g.left = append(g.left, dir) // removed when the kernel has ended their processes
	}
	g.sweepLocked()
}

// Confined reports whether control groups are in use.
func (g *Groups) Confined() bool { return g.root != "" }

// New returns a new group, or nil without an error if there are no control groups.
func (g *Groups) New() (*Group, error) {
	if g.root == "" {
		return nil, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sweepLocked()
	dir, err := g.mkdirLocked()
	if err != nil {
		return nil, fmt.Errorf("make control group: %w", err)
	}
	fd, err := os.Open(dir)
	if err != nil {
		_ = os.Remove(dir)
		return nil, fmt.Errorf("open control group: %w", err)
	}
	return &Group{parent: g, dir: dir, fd: fd}, nil
}

// mkdirLocked makes a directory with the next free number.
func (g *Groups) mkdirLocked() (dir string, err error) {
	for {
		g.next++
		dir = filepath.Join(g.root, fmt.Sprintf("p%d", g.next))
		if err = os.Mkdir(dir, 0o755); !errors.Is(err, os.ErrExist) {
			return dir, err
		}
	}
}

// FD returns the descriptor for clone3 to start a process inside the group.
func (g *Group) FD() int { return int(g.fd.Fd()) }

// Kill kills all members immediately and atomically.
func (g *Group) Kill() error {
	if err := os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0); err != nil {
		return fmt.Errorf("kill control group: %w", err)
	}
	return nil
}

// Release gives the group up. Live members keep running, and the directory is removed after their
// end. g may be nil.
func (g *Group) Release() {
	if g == nil {
		return
	}
	_ = g.fd.Close()
	g.parent.mu.Lock()
	defer g.parent.mu.Unlock()
	g.parent.left = append(g.parent.left, g.dir)
	g.parent.sweepLocked()
}

func (g *Groups) sweepLocked() {
	kept := g.left[:0]
	for _, dir := range g.left {
		if err := removeTree(dir); errors.Is(err, unix.EBUSY) {
			kept = append(kept, dir)
		}
	}
	g.left = kept
}

// removeTree removes a group, and the groups that its processes made in it. A group with a process keeps them all:
// an init makes a group before the process of a service enters it.
func removeTree(dir string) error {
	err := os.Remove(dir)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
	if err != nil || !slices.Contains(strings.Split(string(events), "\n"), "populated 0") {
		return unix.EBUSY
	}
	inner, err := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs")) // errors only on a bad pattern
	if err != nil {
		return err
	}
	for _, procs := range inner {
		if err := removeTree(filepath.Dir(procs)); err != nil {
			return err
		}
	}
	return os.Remove(dir)
}

// Close kills the remaining members and removes the directory.
func (g *Groups) Close() error {
	if g.root == "" {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, dir := range g.left {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	}
	g.sweepLocked()
	if g.lock != nil {
		_ = g.lock.Close()
	}
	if err := os.Remove(g.root); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("remove control group: %w", err)
	}
	return nil
}
