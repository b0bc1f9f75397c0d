package snapshots

import (
	"context"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/leaf/listfilter"
)

func snapshotEntry(ctx context.Context, made map[string]time.Time) func(api.SnapshotInfo) listfilter.Entry {
	return func(i api.SnapshotInfo) listfilter.Entry {
		return listfilter.Entry{Name: i.Tag, Short: short(routing.TagNames(ctx, i.Tag)), Made: made[i.Tag], Labels: i.Labels,
			Fields: map[string][]string{"status": {string(i.Status)}, "image": {i.Image}, "agent": {agentAge(i.Agent)},
				"parent": routing.TagNames(ctx, pointed(i.ParentTag)), "sandbox": {pointed(i.BranchedFrom)}}}
	}
}

func agentAge(a *api.GuestAgent) string {
	switch {
	case a == nil:
		return agentUnknown
	case a.Outdated:
		return agentOld
	}
	return agentCurrent
}

func pointed(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// short returns another name of an object, or "".
func short(all []string) string {
	if len(all) < 2 {
		return ""
	}
	return all[1]
}

// snapshotFilters are the filters of the list. The status values are those of the API's types.
var snapshotFilters = listfilter.Rules{listfilter.Label: nil, listfilter.Name: nil, listfilter.Since: nil,
	listfilter.Before: nil, "image": nil, "parent": nil, "sandbox": nil,
	"status": {string(api.SnapshotReady), string(api.SnapshotWriting), string(api.SnapshotFailed)},
	"agent":  {agentCurrent, agentOld, agentUnknown}}

// Values of the filter agent.
const (
	agentCurrent = "current"
	agentOld     = "old"
	agentUnknown = "unknown"
)
