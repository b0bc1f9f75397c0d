package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// noLimit lifts a limit in the files of a group.
const noLimit = "max"

// Own is the group of the daemon's own processes. VMMs are not in it: each has a group of its own.
type Own struct {
	group  *Group
	parent string // where the process returns to on Close; empty if it stays
}

// LimitSelf moves this process into the group of the daemon's own processes and bounds the group's
// memory, in bytes; 0 lifts the bound of an earlier daemon. Processes that this one starts later
// are in the group as well, unless they are started in another. Beyond the bound the kernel kills
// the group's largest process and leaves all other groups alone. LimitSelf must be called while
// this process has few pages: memory charged earlier stays with the old group.
func (r *Root) LimitSelf(memory int64) (*Own, error) {
	own := r.own()
	if err := (Limits{Memory: memory}).Check(r.have); err != nil {
		return nil, err
	}
	if err := os.Mkdir(own.group.dir(), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the daemon's cgroup: %w", err)
	}
	limit := noLimit
	if memory > 0 {
		limit = strconv.FormatInt(memory, 10)
	}
	if err := set(own.group.dir(), "memory.max", limit); err != nil && memory > 0 {
		return nil, err
	}
	return own, set(own.group.dir(), "cgroup.procs", "0") // 0: the process that writes
}

// own returns the group: in a delegated part the leaf that vacate uses, otherwise one of this root.
func (r *Root) own() *Own {
	if r.place.root {
		return &Own{group: &Group{root: r, name: daemonLeaf}, parent: r.place.dir}
	}
	return &Own{group: &Group{root: r, name: filepath.Join("..", daemonLeaf)}}
}

// OOMKills returns how many processes of the group the kernel has killed for want of memory since
// the group was made, those of earlier daemons included.
func (o *Own) OOMKills() int64 {
	events, err := o.group.table("memory.events")
	if err != nil {
		return 0
	}
	return events["oom_kill"]
}

// Close returns this process to the group it came from and removes the empty group. A group that
// still has processes stays for the next daemon.
func (o *Own) Close() {
	if o.parent == "" {
		return
	}
	if set(o.parent, "cgroup.procs", "0") == nil {
		_ = os.Remove(o.group.dir())
	}
}
