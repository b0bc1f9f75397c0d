package httpapi_test

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
)

// A tenant renames its own snapshots, below its own prefix. It learns of no tag of another.
func TestTenantsRename(t *testing.T) {
	b := newTenants(t)
	into[api.SnapshotInfo](t, b.as(b.evil, "POST", "/v1/snapshots", `{"tag":"mine","image":"python-numpy"}`), 201)
	for tag, code := range map[string]api.Code{"base": api.CodeNotFound, "acme-base": api.CodeNotFound,
		"private": api.CodeNotFound, "py": api.CodeForbidden} {
		wantError(t, b.as(b.evil, "POST", "/v1/snapshots/"+tag+"/rename", `{"to":"x"}`), code)
	}
	// Tags of others are below another prefix, so they are free.
	for _, to := range []string{"private", "acme-base", "base"} {
		tag := into[api.SnapshotInfo](t, b.as(b.evil, "POST", "/v1/snapshots/mine/rename", `{"to":"`+to+`"}`), 200).Tag
		if tag != "evil-"+to {
			t.Errorf("it is named %s", tag)
		}
		into[api.SnapshotInfo](t, b.as(b.evil, "POST", "/v1/snapshots/"+tag+"/rename", `{"to":"mine"}`), 200)
	}
	// The operator keeps a tenant's snapshot below its prefix.
	wantError(t, b.do("POST", "/v1/snapshots/acme-base/rename", `{"to":"evil-base"}`), api.CodeInvalid)
	into[api.SnapshotInfo](t, b.do("POST", "/v1/snapshots/acme-base/rename", `{"to":"acme-first"}`), 200)
	if sb := into[api.SandboxInfo](t, b.as(b.acme, "GET", "/v1/sandboxes/"+b.sandbox, ""), 200); sb.SnapshotTag != "acme-first" {
		t.Errorf("its sandbox comes from %s", sb.SnapshotTag)
	}
	if log := b.audit.String(); !strings.Contains(log, `"snapshot.rename"`) {
		t.Error("the audit log has no renaming")
	}
}

// A public snapshot stays public, and a private one that takes its old tag is private.
func TestAPublicSnapshotIsRenamed(t *testing.T) {
	b := newTenants(t)
	wantError(t, b.do("POST", "/v1/snapshots/py/rename", `{"to":"private"}`), api.CodeConflict)
	into[[]api.SandboxInfo](t, b.as(b.evil, "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), 201)
	wantError(t, b.as(b.evil, "GET", "/v1/snapshots/private/info", ""), api.CodeNotFound)
	info := into[api.SnapshotInfo](t, b.do("POST", "/v1/snapshots/py/rename", `{"to":"public-py"}`), 200)
	if info.Tag != "public-py" || !info.Public {
		t.Errorf("got %+v", info)
	}
	into[[]api.SandboxInfo](t, b.as(b.evil, "POST", "/v1/sandboxes", `{"snapshot_tag":"public-py"}`), 201)
	into[api.SnapshotInfo](t, b.do("POST", "/v1/snapshots", `{"tag":"py","image":"python-numpy"}`), 201)
	wantError(t, b.as(b.evil, "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), api.CodeNotFound)
	wantError(t, b.do("POST", "/v1/snapshots/py/rename", `{"to":"py"}`), api.CodeInvalid)
	wantError(t, b.do("POST", "/v1/snapshots/py/rename", `{"to":"../x"}`), api.CodeInvalid)
	wantError(t, b.do("POST", "/v1/snapshots/py/rename", `{}`), api.CodeInvalid)
}
