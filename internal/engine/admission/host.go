package admission

import (
	"sync"
	"time"

	"github.com/forkd/forkd/internal/confine/cgroup"
	"github.com/forkd/forkd/internal/engine/settings"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// slowAge is the maximum age of slowly changing facts. The kernel itself updates pressure every 2
// s.
const slowAge = time.Second

// thisHost reads the facts of this process's host.
type thisHost struct {
	store string // a directory on the store's file system
	group string // where cgroups are made; may be empty
	now   func() time.Time

	mu   sync.Mutex // guards the fields below; held while they are read
	read time.Time
	slow hostproc.Facts
}

// ThisHost returns the settings.Host that this process runs on. store is a directory on the file system to
// check. group is the cgroup in which VMs' cgroups are made; it is empty if there are no groups.
func ThisHost(store, group string, now func() time.Time) settings.Host {
	if group == "" {
		group = cgroup.Around()
	}
	return &thisHost{store: store, group: group, now: now}
}

// Facts implements settings.Host. Unknown facts are zero and are then not counted. Memory must be known.
func (h *thisHost) Facts() (hostproc.Facts, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.now(); h.read.IsZero() || now.Sub(h.read) > slowAge {
		h.slow, h.read = h.readSlow(), now
	}
	f := h.slow
	var err error
	if f.MemoryAvailable, f.MemoryTotal, err = hostproc.Memory(); err != nil {
		return f, err
	}
	if available, limit, bounded := cgroup.MemoryAround(h.group); bounded { // in a container, or a unit with MemoryMax
		f.MemoryAvailable, f.MemoryTotal = min(f.MemoryAvailable, available), min(f.MemoryTotal, limit)
	}
	if f.DiskFree, f.DiskTotal, err = hostproc.Disk(h.store); err != nil {
		return f, err
	}
	if f.Files, f.MaxFiles, err = hostproc.Files(); err != nil {
		f.MaxFiles = 0
	}
	if f.Threads, err = hostproc.Threads(); err != nil {
		f.MaxThreads = 0
	}
	return f, nil
}

func (h *thisHost) readSlow() (f hostproc.Facts) {
	var err error
	if f.MaxThreads, err = hostproc.MaxThreads(); err != nil {
		f.MaxThreads = 0
	}
	if used, limit, bounded := cgroup.Threads(h.group); bounded {
		f.GroupThreads, f.MaxGroupThreads = used, limit
	}
	if f.Pressure, err = hostproc.ReadPressure(); err != nil {
		f.Pressure = hostproc.Pressure{}
	}
	return f
}
