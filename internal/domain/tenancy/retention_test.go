package tenancy

import (
	"fmt"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/leaf/retention"
)

// Snapshots for the daemon's own use have no default rules, and no maximum: a template's layer must not expire before
// its template.
func TestInternalSnapshotsHaveNoDefaults(t *testing.T) {
	policy, err := retention.ParsePolicy([]string{"acme:expire=1h,keep-last=2,max-expire=1h"}, keys.IsTenant)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_700_000_000, 0)
	acme := &lens{New(roles.Engine{}, Config{Retention: policy, Now: func() time.Time { return now }}), roles.Engine{}, principal.Principal{Tenant: "acme"}}
	of := sandbox.Info{Owner: "acme", Labels: map[string]string{retention.Expires: "never"}}
	for _, req := range []sandbox.BranchRequest{{Internal: true}, {Transient: true}} {
		if got, err := acme.retained(req, of); err != nil || len(got.Labels) != 0 {
			t.Errorf("%+v: labels %v, %v", req, got.Labels, err)
		}
	}
	// The rules are labels that a full set has room for.
	full := sandbox.Info{Owner: "acme", Labels: map[string]string{}}
	for i := range labels.MaxLabels {
		full.Labels[fmt.Sprint("k", i)] = ""
	}
	got, err := acme.retained(sandbox.BranchRequest{}, full)
	if err != nil || len(got.Labels) != 2 {
		t.Errorf("labels %v, %v", got.Labels, err)
	}
	if err := sandbox.CheckLabels(labels.Merge(full.Labels, got.Labels)); err != nil {
		t.Errorf("the defaults make a request fail: %v", err)
	}
	// A rule among the sandbox's labels is a rule of the request, also beyond the maximum.
	if _, err := acme.retained(sandbox.BranchRequest{}, of); err == nil {
		t.Error("a branch inherits an expiry beyond the maximum")
	}
	of.Labels[retention.Expires] = "30m"
	if got, err := acme.retained(sandbox.BranchRequest{}, of); err != nil || len(got.Labels) != 1 || got.Labels[retention.KeepLast] != "2" {
		t.Errorf("labels %v, %v", got.Labels, err)
	}
}
