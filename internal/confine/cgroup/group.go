package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Group is a group for one VM. Its methods are safe for concurrent use.
type Group struct {
	root *Root
	name string // of its directory, relative to the root's
}

// Name returns the group's name for Find, in this daemon or a later one.
func (g *Group) Name() string { return g.name }

func (g *Group) dir() string { return filepath.Join(g.root.dir, g.name) }

// Open opens the group's directory, to start a process in it with CLONE_INTO_CGROUP.
func (g *Group) Open() (*os.File, error) { return os.Open(g.dir()) }

// Set changes limits. Zero fields stay unchanged.
func (g *Group) Set(l Limits) error {
	if err := l.Check(g.root.have); err != nil {
		return err
	}
	for _, s := range l.settings() {
		if err := set(g.dir(), s.file, s.value); err != nil {
			return err
		}
	}
	return nil
}

// Use is a group's resource usage. Fields without a controller are zero.
type Use struct {
	Memory, Peak  int64 // bytes, including page cache and kernel memory
	PIDs          int
	CPU           time.Duration // time used
	Throttled     time.Duration // time waited because of cpu.max
	Read, Written int64         // of all devices, since the group was created
}

// Use returns the group's usage, or fs.ErrNotExist if the group is gone.
func (g *Group) Use() (Use, error) {
	var u Use
	cpu, err := g.table("cpu.stat")
	if err != nil {
		return u, err
	}
	u.CPU = time.Duration(cpu["usage_usec"]) * time.Microsecond
	u.Throttled = time.Duration(cpu["throttled_usec"]) * time.Microsecond
	u.Memory, u.Peak = g.number("memory.current"), g.number("memory.peak")
	u.PIDs = int(g.number("pids.current"))
	u.Read, u.Written = g.transferred()
	return u, nil
}

// transferred sums up io.stat, which has a line per device.
func (g *Group) transferred() (read, written int64) {
	b, _ := os.ReadFile(filepath.Join(g.dir(), "io.stat"))
	for _, field := range strings.Fields(string(b)) {
		name, value, _ := strings.Cut(field, "=")
		n, _ := strconv.ParseInt(value, 10, 64)
		switch name {
		case "rbytes":
			read += n
		case "wbytes":
			written += n
		}
	}
	return read, written
}

// Killed is the memory limit that led the kernel to kill a process of a group.
type Killed int

const (
	NotKilled Killed = iota
	ByOwn            // the group's own limit
	ByTree           // the limit of its tree's group
	ByHost           // the host's memory, or the limit of a group around the daemon
)

// Killed reports whether a process of the group was killed for lack of memory, and the limit in bytes.
func (g *Group) Killed() (by Killed, limit int64) {
	events, err := g.table("memory.events")
	if err != nil || events["oom_kill"] == 0 {
		return NotKilled, 0
	}
	// The kernel counts oom in the group whose limit was reached, and in its ancestors, but not in its
	// descendants.
	if events["oom"] > 0 {
		return ByOwn, g.number("memory.max")
	}
	if tree := g.tree(); tree != nil {
		around, err := tree.table("memory.events.local")
		if err == nil && around["oom"] > 0 {
			return ByTree, tree.number("memory.max")
		}
	}
	return ByHost, 0
}

// table parses a file of lines "name value".
func (g *Group) table(file string) (map[string]int64, error) {
	b, err := os.ReadFile(filepath.Join(g.dir(), file))
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		name, value, _ := strings.Cut(sc.Text(), " ")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			out[name] = n
		}
	}
	return out, nil
}

// number parses a file with one number. It returns 0 if there is no number.
func (g *Group) number(file string) int64 {
	b, _ := os.ReadFile(filepath.Join(g.dir(), file))
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}

// emptyWait limits how long Remove waits for killed processes to disappear.
const emptyWait = 100 * time.Millisecond

// Remove removes the group after its processes have ended. It also removes the surrounding groups once they are
// empty. A group that still has processes is tried again when another group is removed.
func (g *Group) Remove() error {
	g.root.retry()
	err := g.rmdir()
	if errors.Is(err, unix.EBUSY) {
		g.awaitEmpty()
		err = g.rmdir()
	}
	if errors.Is(err, unix.EBUSY) {
		g.root.later(g.name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	return nil
}

func (g *Group) rmdir() error {
	if err := os.Remove(g.dir()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	g.root.making.Lock()
	defer g.root.making.Unlock()
	for a := g.around(); a != nil; a = a.around() {
		_ = os.Remove(a.dir()) // fails if it still has groups in it
	}
	return nil
}

// awaitEmpty waits until the group has no processes. The kernel wakes pollers of cgroup.events on this change.
func (g *Group) awaitEmpty() {
	f, err := os.Open(filepath.Join(g.dir(), "cgroup.events"))
	if err != nil {
		return
	}
	defer f.Close()
	end := time.Now().Add(emptyWait)
	for b := make([]byte, 256); ; {
		n, err := f.ReadAt(b, 0)
		left := time.Until(end)
		if n == 0 && err != nil || bytes.Contains(b[:n], []byte("populated 0")) || left <= 0 {
			return
		}
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}}, int(left.Milliseconds())+1)
	}
}
