package sandboxes

import (
	"context"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/leaf/listfilter"
)

// sandboxEntry returns a sandbox as filters see it. made has the times of creation in full.
func sandboxEntry(ctx context.Context, made map[string]time.Time) func(api.SandboxInfo) listfilter.Entry {
	return func(i api.SandboxInfo) listfilter.Entry {
		return listfilter.Entry{Name: i.ID, Short: i.DNSID, Made: made[i.ID], Labels: i.Labels,
			Fields: map[string][]string{"status": {string(i.Status)}, "snapshot": routing.TagNames(ctx, i.SnapshotTag),
				"parent": {i.ForkedBy}, "node": {i.Node}}}
	}
}

// sandboxFilters are the filters of the list. The status values are those of the API's types.
var sandboxFilters = listfilter.Rules{listfilter.Label: nil, listfilter.Name: nil, listfilter.Since: nil,
	listfilter.Before: nil, "snapshot": nil, "parent": nil, "node": nil,
	"status": {string(api.SandboxRunning), string(api.SandboxPaused), string(api.SandboxPausing),
		string(api.SandboxResuming), string(api.SandboxStalled), string(api.SandboxFailed)}}
