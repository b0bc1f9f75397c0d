package httpapi_test

import (
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/leaf/retention"
)

const old = `{"set":{"forkd.expires":"2020-01-01T00:00:00Z"}}`

// due returns the due snapshots of an answer.
func due(r api.PruneResult) (tags string) {
	for _, d := range r.Snapshots {
		tags += d.Tag + ":" + d.Owner + " "
	}
	return tags
}

// A tenant's prune neither shows nor removes the snapshots of others. The operator's has all.
func TestAPruneOfATenant(t *testing.T) {
	b := newTenants(t)
	into[api.SnapshotInfo](t, b.as(b.acme, "POST", "/v1/snapshots", `{"tag":"old","image":"python-numpy"}`), 201)
	into[api.SnapshotInfo](t, b.as(b.acme, "PATCH", "/v1/snapshots/old/labels", old), 200)
	into[api.SnapshotInfo](t, b.do("PATCH", "/v1/snapshots/private/labels", old), 200)
	wantError(t, b.as(b.evil, "PATCH", "/v1/snapshots/acme-old/labels", old), api.CodeNotFound)
	wantError(t, b.as(b.evil, "PATCH", "/v1/snapshots/py/labels", old), api.CodeForbidden)
	for who, key := range map[string]string{"evil": b.evil, "acme": b.acme} {
		want := map[string]string{"evil": "", "acme": "acme-old:acme "}[who]
		r := into[api.PruneResult](t, b.as(key, "POST", "/v1/store/prune", `{"dry_run":true}`), 200)
		if got := due(r); got != want || !r.DryRun {
			t.Errorf("%s sees %q, want %q", who, got, want)
		}
	}
	if got := due(into[api.PruneResult](t, b.as(b.evil, "POST", "/v1/store/prune", ""), 200)); got != "" {
		t.Errorf("evil removes %s", got)
	}
	all := into[api.PruneResult](t, b.do("POST", "/v1/store/prune", `{"dry_run":true}`), 200)
	if got := due(all); got != "acme-old:acme private: " || all.Bytes == 0 {
		t.Errorf("the operator sees %q, %d bytes", got, all.Bytes)
	}
	if got := due(into[api.PruneResult](t, b.as(b.acme, "POST", "/v1/store/prune", ""), 200)); got != "acme-old:acme " {
		t.Errorf("acme removes %s", got)
	}
	wantError(t, b.as(b.acme, "GET", "/v1/snapshots/old/info", ""), api.CodeNotFound)
	into[api.SnapshotDetail](t, b.do("GET", "/v1/snapshots/private/info", ""), 200)
}

// The daemon's clock counts for a duration, and the children of a branch do not get the rules.
func TestRulesOfABranch(t *testing.T) {
	b := newBench(t)
	id := into[[]api.SandboxInfo](t, b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), 201)[0].ID
	branch := b.branch(id, `{"tag":"b","n":1,"labels":{"forkd.expires":"1h","forkd.pin":"true","job":"7"}}`)
	if got := branch.Children[0].Labels; len(got) != 1 || got["job"] != "7" {
		t.Errorf("the child has %v", got)
	}
	s := into[api.SnapshotInfo](t, b.do("PATCH", "/v1/snapshots/b/labels", `{"set":{"forkd.expires":"24h"}}`), 200)
	if s.ExpiresAt == nil || !s.Pinned {
		t.Fatalf("got %+v", s)
	}
	if left := time.Until(time.Unix(*s.ExpiresAt, 0)); left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("%s are left", left)
	}
	wantError(t, b.do("DELETE", "/v1/snapshots/b", ""), api.CodeConflict)
	wantError(t, b.do("PATCH", "/v1/snapshots/b/labels", `{"set":{"forkd.keep-last":"many"}}`), api.CodeInvalid)
	wantError(t, b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py","labels":{"forkd.pin":"maybe"}}`), api.CodeInvalid)
}

// A branch without rules gets its owner's defaults. Rules of a request win, for a tenant up to its maximum.
func TestDefaultsOfBranches(t *testing.T) {
	policy, err := retention.ParsePolicy([]string{"expire=100h,keep-last=9", "acme:expire=24h,max-expire=48h"}, keys.IsTenant)
	if err != nil {
		t.Fatal(err)
	}
	b := tenantsOf(t, newBenchWith(t, func(o *httpapi.Options) { o.Retention = policy }))
	path := "/v1/sandboxes/" + b.sandbox + "/branch"
	left := func(s api.SnapshotInfo) time.Duration {
		if s.ExpiresAt == nil {
			return 0
		}
		return time.Duration(*s.ExpiresAt-s.CreatedAtUnix) * time.Second // the engine makes all at one time
	}
	info := func(tag string) api.SnapshotInfo {
		return into[api.SnapshotDetail](t, b.do("GET", "/v1/snapshots/"+tag+"/info", ""), 200).SnapshotInfo
	}
	for tag, c := range map[string]struct {
		labels string
		want   time.Duration
	}{"d1": {`{}`, 24 * time.Hour}, "d2": {`{"forkd.expires":"48h"}`, 48 * time.Hour}, "d3": {`{"forkd.expires":"1h"}`, time.Hour}} {
		into[api.BranchResult](t, b.as(b.acme, "POST", path, `{"tag":"`+tag+`","labels":`+c.labels+`}`), 201)
		s := info("acme-" + tag)
		if left(s) != c.want || s.Labels[retention.KeepLast] != "" {
			t.Errorf("%s has %s left, want %s: %v", tag, left(s), c.want, s.Labels)
		}
	}
	for _, labels := range []string{`{"forkd.expires":"49h"}`, `{"forkd.expires":"never"}`, `{"forkd.pin":"true"}`} {
		wantError(t, b.as(b.acme, "POST", path, `{"tag":"no","labels":`+labels+`}`), api.CodeForbidden)
		wantError(t, b.as(b.acme, "PATCH", "/v1/snapshots/d1/labels", `{"set":`+labels+`}`), api.CodeForbidden)
	}
	wantError(t, b.as(b.acme, "PATCH", "/v1/snapshots/d1/labels", `{"remove":["forkd.expires"]}`), api.CodeForbidden)
	later := time.Unix(info("acme-d1").CreatedAtUnix, 0).Add(47 * time.Hour).UTC().Format(time.RFC3339)
	into[api.SnapshotInfo](t, b.as(b.acme, "PATCH", "/v1/snapshots/d1/labels",
		`{"set":{"job":"7","forkd.expires":"`+later+`"}}`), 200)
	into[api.SnapshotInfo](t, b.as(b.acme, "PATCH", "/v1/snapshots/base/labels", `{"set":{"forkd.pin":"true"}}`), 200)
	// The operator has the daemon's defaults for its own, the tenant's for a tenant's sandbox, and no maximum.
	into[api.BranchResult](t, b.do("POST", path, `{"tag":"op1"}`), 201)
	if s := info("op1"); left(s) != 24*time.Hour {
		t.Errorf("the operator's branch of a tenant's sandbox has %s left", left(s))
	}
	into[api.BranchResult](t, b.do("POST", path, `{"tag":"op2","labels":{"forkd.expires":"never","forkd.pin":"true"}}`), 201)
	own := into[[]api.SandboxInfo](t, b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), 201)[0].ID
	into[api.BranchResult](t, b.do("POST", "/v1/sandboxes/"+own+"/branch", `{"tag":"op3"}`), 201)
	if s := info("op3"); left(s) != 100*time.Hour || s.Labels[retention.KeepLast] != "9" {
		t.Errorf("the operator's branch has %s left: %v", left(s), s.Labels)
	}
	into[api.BranchResult](t, b.do("POST", "/v1/sandboxes/"+own+"/branch",
		`{"tag":"op4","labels":{"forkd.expires":"never","forkd.keep-last":"all"}}`), 201)
	if s := info("op4"); left(s) != 0 {
		t.Errorf("a branch kept for ever has %s left", left(s))
	}
	if s := info("acme-base"); left(s) != 0 {
		t.Errorf("a snapshot of an image has %s left", left(s))
	}
}
