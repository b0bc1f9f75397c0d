package routing

import (
	"context"
	"fmt"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/leaf/listfilter"
)

// IDPath is the input of an operation on one sandbox.
type IDPath struct {
	ID string `path:"id" doc:"Name of the sandbox"`
}

// TagPath is the input of an operation on one snapshot.
type TagPath struct {
	Tag string `path:"tag" doc:"Name of the snapshot"`
}

// PrivateNetworkPath is the input of an operation on one private network.
type PrivateNetworkPath struct {
	Network string `path:"network" doc:"Name of the private network"`
}

// FilterInput is the input of lists with filters.
type FilterInput struct {
	Filter []string `query:"filter,explode" doc:"Filter as KEY=VALUE, such as label=job=7; may be repeated. Values of one key select any of them, labels select all of them, and different keys restrict each other" maxItems:"32"`
}

// Filtered returns the entries of a list that a request selects. The list is the caller's view, so a filter finds
// no other tenant's entry.
func Filtered[T any](in *FilterInput, rules listfilter.Rules, list []T, see func(T) listfilter.Entry) ([]T, error) {
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

// TagNames returns the names of a snapshot that a caller may use: a tenant may omit its prefix.
func TagNames(ctx context.Context, tag string) []string {
	if tag == "" {
		return nil
	}
	short, is := strings.CutPrefix(tag, principal.From(ctx).Tenant+"-")
	if !is || principal.From(ctx).Operator() {
		return []string{tag}
	}
	return []string{tag, short}
}

// LabelChange converts a request. The audit log gets numbers only, because labels are long and not its subject.
func LabelChange(ctx context.Context, object string, in api.LabelsRequest) labels.Change {
	n := requestinfo.From(ctx)
	n.Object, n.Text = object, fmt.Sprintf("%d labels set, %d removed", len(in.Set), len(in.Remove))
	return labels.Change{Set: in.Set, Remove: in.Remove}
}
