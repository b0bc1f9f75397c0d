package httpapi_test

import (
	"testing"
	"time"

	"github.com/forkd/forkd/api"
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
