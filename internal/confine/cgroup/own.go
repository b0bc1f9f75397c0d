package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// noLimit removes a limit when written to a group's file.
const noLimit = "max"

// Own is the group of the daemon's own processes. VMMs are not in it, but in their own groups.
type Own struct {
	group  *Group
	parent string // group to return to on Close; empty if the process stays
}

// LimitSelf moves this process into the group of the daemon's own processes and limits the group's memory, in
// bytes; 0 removes the limit of an earlier daemon. Processes started later by this process are also in the group,
// unless they are started in another one. Above the limit the kernel kills the group's largest process and does
// not affect other groups. LimitSelf must be called while this process has few pages: memory charged earlier
// stays with the old group.
func (r *Root) LimitSelf(memory int64) (*Own, error) {
	if r.place.apart {
		return nil, fmt.Errorf("the daemon's own cgroup is not in %s: %w", r.place.dir, ErrUnsupported)
	}
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
	return own, set(own.group.dir(), "cgroup.procs", "0") // 0 means the writing process
}

// own returns the group. In a delegated part it is the leaf used by vacate, otherwise a group of this root.
func (r *Root) own() *Own {
	if r.place.root {
		return &Own{group: &Group{root: r, name: daemonLeaf}, parent: r.place.dir}
	}
	return &Own{group: &Group{root: r, name: filepath.Join("..", daemonLeaf)}}
}

// OOMKills returns the number of the group's processes that the kernel has killed for lack of memory since the
// group was created, including processes of earlier daemons.
func (o *Own) OOMKills() int64 {
	events, err := o.group.table("memory.events")
	if err != nil {
		return 0
	}
	return events["oom_kill"]
}

// Close moves this process back to its previous group and removes the empty group. A group that still has
// processes stays for the next daemon.
func (o *Own) Close() {
	if o.parent == "" {
		return
	}
	if set(o.parent, "cgroup.procs", "0") == nil {
		_ = os.Remove(o.group.dir())
	}
}
