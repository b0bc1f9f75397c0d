package nodes

import (
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/placement"
)

// board returns a node's facts in the form of a placement board. The board knows snapshots by their tags.
func board(name string, n api.Node, asked time.Time) placement.Facts {
	f := placement.Facts{Name: name, Asked: asked, Capacity: (n.Memory.Total - n.Memory.Reserve) >> 20,
		Draining: n.Draining || n.Admits == api.AdmitsNone, CPUFeatures: n.CPU.Features, DiskFree: 1,
		Snapshots: make(map[string]placement.Presence, len(n.Snapshots)), More: n.Truncated}
	f.Used = f.Capacity - n.Memory.Free>>20
	if n.Disk.Total > 0 {
		f.DiskFree = float64(n.Disk.Free) / float64(n.Disk.Total)
	}
	ready := map[string]int{}
	for _, p := range n.Pools {
		ready[p.Tag] += p.Ready
	}
	for _, s := range n.Snapshots {
		p := placement.Presence{Bytes: max(s.Bytes, 1), BytesPresent: max(s.Bytes, 1), Running: s.Running > 0,
			Prepared: ready[s.Tag]}
		f.Snapshots[s.Tag] = p
		// A tenant names its snapshot with and without its own name in front.
		if short, is := strings.CutPrefix(s.Tag, s.Owner+"-"); is && s.Owner != "" {
			if _, taken := f.Snapshots[short]; !taken {
				f.Snapshots[short] = p
			}
		}
	}
	return f
}
