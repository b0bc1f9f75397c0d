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
	name string // of its directory below the root's
}

// Name finds the group again, in this daemon or a later one.
func (g *Group) Name() string { return g.name }

func (g *Group) dir() string { return filepath.Join(g.root.dir, g.name) }

// Open opens the group's directory, for a process to be started in it: CLONE_INTO_CGROUP.
func (g *Group) Open() (*os.File, error) { return os.Open(g.dir()) }

// Set changes limits; what is zero stays as it is.
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

// Use is what a group uses. What no controller counts is zero.
type Use struct {
	Memory, Peak  int64 // bytes, page cache and the kernel's memory for it included
	PIDs          int
	CPU           time.Duration // used
	Throttled     time.Duration // for which it was held up by cpu.max
	Read, Written int64         // of all devices, since it was made
}

// Use reads what the group uses; fs.ErrNotExist: it is gone.
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

// transferred sums io.stat, a line per device.
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

// Killed is whose memory was at an end when the kernel killed a process of a group.
type Killed int

const (
	NotKilled Killed = iota
	ByOwn            // the group's own limit
	ByTree           // that of the tree's group that it is in
	ByHost           // the host's, or that of a group around the daemon
)

// Killed says why a process of the group was killed for want of memory, if one was, and
// what the limit was in bytes.
func (g *Group) Killed() (by Killed, limit int64) {
	events, err := g.table("memory.events")
	if err != nil || events["oom_kill"] == 0 {
		return NotKilled, 0
	}
	// The kernel counts oom where the limit was reached, and further up, but not further down.
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

// table reads a file of lines "name value".
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

// number reads a file of one number; 0 if there is none.
func (g *Group) number(file string) int64 {
	b, _ := os.ReadFile(filepath.Join(g.dir(), file))
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}

// emptyWait bounds how long Remove waits for the kernel to have taken apart what was killed.
const emptyWait = 100 * time.Millisecond

// Remove removes the group, whose processes have ended, and those around it with the last
// group in them. One that still has processes is tried again when another one is removed.
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
		_ = os.Remove(a.dir()) // one with groups in it stays
	}
	return nil
}

// awaitEmpty waits until the group has no processes. The kernel wakes who polls cgroup.events
// when that changes.
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
