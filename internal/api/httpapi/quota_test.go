package httpapi_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/vmspec"
)

// quotaBench is a bench with tenants. Each has a key with its own quotas.
type quotaBench struct{ *tenants }

func (b quotaBench) tenant(q keys.Quotas) (name, text string) {
	name = fmt.Sprintf("t%d", len(b.texts))
	return name, b.key(keys.Spec{Name: "q", Tenant: name, Quotas: q})
}

// over checks that an answer refuses a request because of a quota.
func (b quotaBench) over(t *testing.T, w *httptest.ResponseRecorder, quota string) {
	t.Helper()
	if e := wantError(t, w, api.CodeQuota); e.Details["quota"] != quota || w.Header().Get("Retry-After") == "" {
		t.Errorf("got %+v, Retry-After %q; want quota %s", e, w.Header().Get("Retry-After"), quota)
	}
}

// A guest has 256 MiB by its image. Every route that starts a VM counts this size, even if the
// request does not name it.
func TestTheMemoryQuotaCountsTheRealMemory(t *testing.T) {
	b := quotaBench{newTenants(t)}
	t.Run("parent without memory_mib", func(t *testing.T) {
		_, text := b.tenant(keys.Quotas{MemoryMiB: 255})
		for _, body := range []string{`{"tag":"p","image":"python-numpy"}`,
			`{"tag":"p","image":"python-numpy","memory_mib":0}`, `{"tag":"p","image":"python-numpy","memory_mib":256}`} {
			b.over(t, b.as(text, "POST", "/v1/snapshots", body), "memory_mib")
		}
		into[api.SnapshotInfo](t, b.as(text, "POST", "/v1/snapshots", `{"tag":"p","image":"python-numpy","memory_mib":128}`), 201)
	})
	t.Run("parent beside sandboxes", func(t *testing.T) {
		_, text := b.tenant(keys.Quotas{MemoryMiB: 256 + 255})
		into[[]api.SandboxInfo](t, b.as(text, "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), 201)
		b.over(t, b.as(text, "POST", "/v1/snapshots", `{"tag":"p","image":"python-numpy"}`), "memory_mib")
	})
	t.Run("image that is not there", func(t *testing.T) {
		_, text := b.tenant(keys.Quotas{MemoryMiB: 1})
		wantError(t, b.as(text, "POST", "/v1/snapshots", `{"tag":"p","image":"none"}`), api.CodeNotFound)
	})
	for name, r := range map[string]struct{ method, path, body string }{
		"fork":          {"POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`},
		"branch":        {"POST", "/v1/sandboxes/ID/branch", `{"tag":"x","n":1}`},
		"derive":        {"POST", "/v1/snapshots", `{"tag":"d","from":"py","exec":["true"]}`},
		"diff":          {"GET", "/v1/snapshots/py/diff/own", ""},
		"original fork": {"POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			tenant, text := b.tenant(keys.Quotas{MemoryMiB: 256 + 255})
			sb := into[[]api.SandboxInfo](t, b.as(text, "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), 201)[0].ID
			b.engine.AddSnapshot(sandbox.SnapshotInfo{Tag: tenant + "-own", Owner: tenant, Status: sandbox.SnapshotReady})
			b.over(t, b.as(text, r.method, strings.Replace(r.path, "ID", sb, 1), r.body), "memory_mib")
		})
	}
	t.Run("paused sandboxes keep their place", func(t *testing.T) {
		_, text := b.tenant(keys.Quotas{MemoryMiB: 256})
		sb := into[[]api.SandboxInfo](t, b.as(text, "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), 201)[0].ID
		if w := b.as(text, "POST", "/v1/sandboxes/"+sb+"/pause", `{}`); w.Code >= 300 {
			t.Fatalf("pause: %d %s", w.Code, w.Body)
		}
		b.over(t, b.as(text, "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), "memory_mib")
		if w := b.as(text, "POST", "/v1/sandboxes/"+sb+"/resume", `{}`); w.Code >= 300 {
			t.Errorf("resume within the quota: %d %s", w.Code, w.Body)
		}
	})
}

// Shells of a tenant's pools are ready VMs. They count in its quotas like its sandboxes.
func TestPoolsCountInQuotas(t *testing.T) {
	b := quotaBench{newTenants(t)}
	const make, fork = `{"tag":"own","image":"python-numpy"}`, `{"snapshot_tag":"own"}`
	for quota, q := range map[string]keys.Quotas{"sandboxes": {Sandboxes: 4}, "memory_mib": {MemoryMiB: 4 * 256}} {
		t.Run(quota, func(t *testing.T) {
			tenant, text := b.tenant(q)
			pool := func(tag string, size int) *httptest.ResponseRecorder {
				return b.as(text, "PUT", "/v1/snapshots/"+tag+"/pool", fmt.Sprintf(`{"size":%d}`, size))
			}
			into[api.SnapshotInfo](t, b.as(text, "POST", "/v1/snapshots", make), 201)
			into[api.SnapshotInfo](t, b.as(text, "POST", "/v1/snapshots", `{"tag":"own2","image":"python-numpy"}`), 201)
			b.over(t, pool("own", 5), quota)
			for _, size := range []int{4, 3, 3} { // a size replaces the previous one
				if w := pool("own", size); w.Code != 204 {
					t.Fatalf("pool of %d: %d %s", size, w.Code, w.Body)
				}
			}
			b.over(t, pool("own2", 2), quota) // pools count together
			sb := into[[]api.SandboxInfo](t, b.as(text, "POST", "/v1/sandboxes", fork), 201)[0].ID
			b.over(t, b.as(text, "POST", "/v1/sandboxes", fork), quota)
			// The tenant's snapshot without the prefix, because the operator branched its sandbox.
			plain := "plain-" + tenant
			b.engine.AddSnapshot(sandbox.SnapshotInfo{Tag: plain, Owner: tenant, Status: sandbox.SnapshotReady,
				Shape: vmspec.Shape{MemoryMiB: 256, VCPUs: 1}, BranchedFrom: sb})
			b.over(t, pool(plain, 1), quota)
			if w := pool("own", 2); w.Code != 204 {
				t.Errorf("a smaller pool: %d %s", w.Code, w.Body)
			}
			if w := pool(plain, 1); w.Code != 204 {
				t.Errorf("a pool of %s: %d %s", plain, w.Code, w.Body)
			}
			b.over(t, b.as(text, "POST", "/v1/sandboxes", fork), quota)
			if w := pool(plain, 0); w.Code != 204 {
				t.Errorf("no pool of %s: %d %s", plain, w.Code, w.Body)
			}
			if w := pool("own", 3); w.Code != 204 {
				t.Errorf("a pool of own again: %d %s", w.Code, w.Body)
			}
			b.over(t, pool("own", 4), quota)
			b.over(t, b.as(text, "POST", "/v1/snapshots", `{"tag":"own3","image":"python-numpy"}`), quota)
			if w := pool("own", 0); w.Code != 204 {
				t.Errorf("an empty pool: %d %s", w.Code, w.Body)
			}
			into[[]api.SandboxInfo](t, b.as(text, "POST", "/v1/sandboxes", `{"snapshot_tag":"own","n":3}`), 201)
			// A snapshot of the operator with the tenant's prefix in its tag is the operator's.
			into[api.SnapshotInfo](t, b.do("POST", "/v1/snapshots", `{"tag":"`+tenant+`-op","image":"python-numpy"}`), 201)
			if w := b.do("PUT", "/v1/snapshots/"+tenant+"-op/pool", `{"size":9}`); w.Code != 204 {
				t.Errorf("the operator's pool: %d %s", w.Code, w.Body)
			}
			if w := pool("own", 0); w.Code != 204 {
				t.Errorf("an empty pool beside the operator's: %d %s", w.Code, w.Body)
			}
		})
	}
}

// The CPU share of a tenant's sandbox is at most the default. The operator's sandboxes can have any
// share.
func TestTenantsCannotRaiseTheirCPUWeight(t *testing.T) {
	b := newTenants(t)
	for _, weight := range []int{101, 10000} {
		e := wantError(t, b.as(b.acme, "POST", "/v1/sandboxes", fmt.Sprintf(`{"snapshot_tag":"py","cpu_weight":%d}`, weight)), api.CodeForbidden)
		if string(e.Reason) != string(sandbox.ReasonOperatorOnly) {
			t.Errorf("weight %d: %+v", weight, e)
		}
	}
	for _, weight := range []int{1, 100} {
		into[[]api.SandboxInfo](t, b.as(b.acme, "POST", "/v1/sandboxes", fmt.Sprintf(`{"snapshot_tag":"py","cpu_weight":%d}`, weight)), 201)
	}
	into[[]api.SandboxInfo](t, b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py","cpu_weight":10000}`), 201)
}
