package httpapi

import (
	"context"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/leaf/listfilter"
)

// Filters of the lists. The status values are those of the API's types.
var (
	sandboxFilters = listfilter.Rules{listfilter.Label: nil, listfilter.Name: nil, listfilter.Since: nil,
		listfilter.Before: nil, "snapshot": nil, "parent": nil, "node": nil,
		"status": {string(api.SandboxRunning), string(api.SandboxPaused), string(api.SandboxPausing),
			string(api.SandboxResuming), string(api.SandboxStalled), string(api.SandboxFailed)}}
	snapshotFilters = listfilter.Rules{listfilter.Label: nil, listfilter.Name: nil, listfilter.Since: nil,
		listfilter.Before: nil, "image": nil, "parent": nil, "sandbox": nil,
		"status": {string(api.SnapshotReady), string(api.SnapshotWriting), string(api.SnapshotFailed)},
		"agent":  {agentCurrent, agentOld, agentUnknown}}
	imageFilters = listfilter.Rules{listfilter.Name: nil, listfilter.Since: nil, listfilter.Before: nil}
)

// sandboxEntry returns a sandbox as filters see it. made has the times of creation in full.
func sandboxEntry(ctx context.Context, made map[string]time.Time) func(api.SandboxInfo) listfilter.Entry {
	return func(i api.SandboxInfo) listfilter.Entry {
		return listfilter.Entry{Name: i.ID, Short: i.DNSID, Made: made[i.ID], Labels: i.Labels,
			Fields: map[string][]string{"status": {string(i.Status)}, "snapshot": routing.TagNames(ctx, i.SnapshotTag),
				"parent": {i.ForkedBy}, "node": {i.Node}}}
	}
}

func snapshotEntry(ctx context.Context, made map[string]time.Time) func(api.SnapshotInfo) listfilter.Entry {
	return func(i api.SnapshotInfo) listfilter.Entry {
		return listfilter.Entry{Name: i.Tag, Short: short(routing.TagNames(ctx, i.Tag)), Made: made[i.Tag], Labels: i.Labels,
			Fields: map[string][]string{"status": {string(i.Status)}, "image": {i.Image}, "agent": {agentAge(i.Agent)},
				"parent": routing.TagNames(ctx, pointed(i.ParentTag)), "sandbox": {pointed(i.BranchedFrom)}}}
	}
}

// Values of the filter agent.
const (
	agentCurrent = "current"
	agentOld     = "old"
	agentUnknown = "unknown"
)

func agentAge(a *api.GuestAgent) string {
	switch {
	case a == nil:
		return agentUnknown
	case a.Outdated:
		return agentOld
	}
	return agentCurrent
}

func imageEntry(made map[string]time.Time) func(api.Image) listfilter.Entry {
	return func(i api.Image) listfilter.Entry { return listfilter.Entry{Name: i.Name, Made: made[i.Name]} }
}

// short returns another name of an object, or "".
func short(all []string) string {
	if len(all) < 2 {
		return ""
	}
	return all[1]
}

func pointed(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
