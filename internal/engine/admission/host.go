package admission

import (
	"sync"
	"time"

	"github.com/forkd/forkd/internal/confine/cgroup"
	"github.com/forkd/forkd/internal/engine/settings"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// Host is where the facts come from.
type Host = settings.Host

// slowAge is how old those facts may be that hardly change within it: the kernel itself reckons
// pressure every 2 s.
const slowAge = time.Second

// thisHost reads the facts of the host that this process is on.
type thisHost struct {
	store string // a directory on the store's file system
	group string // where cgroups are made; empty: nowhere
	now   func() time.Time

	mu   sync.Mutex // guards what follows; held while they are read
	read time.Time
	slow hostproc.Facts
}

// ThisHost is the host that this process is on. Directory store is on the file system to look at;
// group is the one that VMs' cgroups are made in; empty: there are none.
func ThisHost(store, group string, now func() time.Time) Host {
	if group == "" {
		group = cgroup.Around()
	}
	return &thisHost{store: store, group: group, now: now}
}

// Facts implements Host. What cannot be told, but for memory, is zero and not counted then.
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
