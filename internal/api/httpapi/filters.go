package httpapi

import (
	"context"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/leaf/listfilter"
)

// filterInput is the input of lists with filters.
type filterInput struct {
	Filter []string `query:"filter,explode" doc:"Filter as KEY=VALUE, such as label=job=7; may be repeated. Values of one key select any of them, labels select all of them, and different keys restrict each other" maxItems:"32"`
}

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

// filtered returns the entries of a list that a request selects. The list is the caller's view, so a filter finds
// no other tenant's entry.
func filtered[T any](in *filterInput, rules listfilter.Rules, list []T, see func(T) listfilter.Entry) ([]T, error) {
	f, err := listfilter.Parse(in.Filter, rules)
	if err == nil {
		list, err = listfilter.Select(f, list, see)
	}
	if err != nil {
		return nil, apierror.New(api.CodeInvalid, "", "%v", err)
	}
	if list == nil {
		list = []T{}
	}
	return list, nil
}

// names returns the names of a snapshot that a caller may use: a tenant may omit its prefix.
func names(ctx context.Context, tag string) []string {
	if tag == "" {
		return nil
	}
	short, is := strings.CutPrefix(tag, principal.From(ctx).Tenant+"-")
	if !is || principal.From(ctx).Operator() {
		return []string{tag}
	}
	return []string{tag, short}
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

// sandboxEntry returns a sandbox as filters see it. made has the times of creation in full.
func sandboxEntry(ctx context.Context, made map[string]time.Time) func(api.SandboxInfo) listfilter.Entry {
	return func(i api.SandboxInfo) listfilter.Entry {
		return listfilter.Entry{Name: i.ID, Short: i.DNSID, Made: made[i.ID], Labels: i.Labels,
			Fields: map[string][]string{"status": {string(i.Status)}, "snapshot": names(ctx, i.SnapshotTag),
				"parent": {i.ForkedBy}, "node": {i.Node}}}
	}
}

func snapshotEntry(ctx context.Context, made map[string]time.Time) func(api.SnapshotInfo) listfilter.Entry {
	return func(i api.SnapshotInfo) listfilter.Entry {
		return listfilter.Entry{Name: i.Tag, Short: short(names(ctx, i.Tag)), Made: made[i.Tag], Labels: i.Labels,
			Fields: map[string][]string{"status": {string(i.Status)}, "image": {i.Image}, "agent": {agentAge(i.Agent)},
				"parent": names(ctx, pointed(i.ParentTag)), "sandbox": {pointed(i.BranchedFrom)}}}
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
