package httpapi_test

import (
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
)

func TestAVolumeIsMadeUsedAndRemoved(t *testing.T) {
	b := newBench(t)
	made := into[api.Volume](t, b.do("POST", "/v1/volumes", `{"name":"data","size_mib":128}`), 201)
	if made.SizeMiB != 128 || made.Sandbox != "" {
		t.Errorf("%+v", made)
	}
	fork := func(n int, mount string) string {
		return fmt.Sprintf(`{"snapshot_tag":"py","n":%d,"volumes":[%s]}`, n, mount)
	}
	const private = `{"name":"data","path":"/data"}`
	sb := into[[]api.SandboxInfo](t, b.do("POST", "/v1/sandboxes", fork(1, private)), 201)[0]
	if len(sb.Volumes) != 1 || sb.Volumes[0].Mode != api.VolumePrivate {
		t.Errorf("the sandbox has %+v", sb.Volumes)
	}
	if got := into[api.Volume](t, b.do("GET", "/v1/volumes/data", ""), 200); got.Sandbox != sb.ID {
		t.Errorf("%+v, want the sandbox %s", got, sb.ID)
	}
	for what, row := range map[string]struct {
		method, path, body string
		code               api.Code
		reason             api.Reason
	}{
		"a second sandbox":   {"POST", "/v1/sandboxes", fork(1, private), api.CodeConflict, api.ReasonVolumeHeld},
		"removal while used": {"DELETE", "/v1/volumes/data", "", api.CodeConflict, api.ReasonVolumeHeld},
		"a snapshot of it": {"POST", "/v1/volumes/data/snapshot", `{"name":"s"}`, api.CodeConflict,
			api.ReasonVolumeHeld},
		"two children":  {"POST", "/v1/sandboxes", fork(2, private), api.CodeInvalid, api.ReasonVolumePrivate},
		"no volume":     {"POST", "/v1/sandboxes", fork(1, `{"name":"x","path":"/x"}`), api.CodeNotFound, api.ReasonVolumeNotFound},
		"a system path": {"POST", "/v1/sandboxes", fork(1, `{"name":"data","path":"/usr"}`), api.CodeInvalid, api.ReasonVolumePath},
		"a mode": {"POST", "/v1/sandboxes", fork(1, `{"name":"data","path":"/d","mode":"steal"}`), api.CodeInvalid,
			api.ReasonVolumeMode},
		"a move from a running sandbox": {"POST", "/v1/sandboxes", fork(1, `{"name":"data","path":"/d","mode":"move"}`),
			api.CodeConflict, api.ReasonVolumeHeld},
		"a taken name": {"POST", "/v1/volumes", `{"name":"data"}`, api.CodeConflict, api.ReasonVolumeExists},
	} {
		if e := wantError(t, b.do(row.method, row.path, row.body), row.code); e.Reason != row.reason {
			t.Errorf("%s: %+v, want %s", what, e, row.reason)
		}
	}
	if w := b.do("DELETE", "/v1/sandboxes/"+sb.ID, ""); w.Code != 204 {
		t.Error(w.Code, w.Body)
	}
	if w := b.do("DELETE", "/v1/volumes/data", ""); w.Code != 204 {
		t.Error(w.Code, w.Body)
	}
	for _, action := range []string{"volume.create", "volume.remove"} {
		if !regexp.MustCompile(`"action":"` + action + `","result":"ok".*"object":"data"`).MatchString(b.audit.String()) {
			t.Errorf("the audit log lacks %s", action)
		}
	}
}

// as sends a request with a key.
func as(b *bench, key, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	return w
}

// A tenant neither sees nor uses the volumes of others, the operator's among them.
func TestVolumesOfOthers(t *testing.T) {
	b := newBench(t)
	into[api.Volume](t, b.do("POST", "/v1/volumes", `{"name":"data"}`), 201)
	_, text, err := b.keys.Create(keys.Spec{Name: "k", Tenant: "acme", Scopes: principal.Read | principal.Fork})
	if err != nil {
		t.Fatal(err)
	}
	if list := into[[]api.Volume](t, as(b, text, "GET", "/v1/volumes", ""), 200); len(list) != 0 {
		t.Errorf("a tenant sees %+v", list)
	}
	for _, r := range [][3]string{{"GET", "/v1/volumes/data", ""}, {"DELETE", "/v1/volumes/data", ""},
		{"POST", "/v1/volumes/data/snapshot", `{"name":"x"}`}, {"POST", "/v1/volumes", `{"name":"x","from":"data"}`}} {
		if e := wantError(t, as(b, text, r[0], r[1], r[2]), api.CodeNotFound); e.Reason != api.ReasonVolumeNotFound {
			t.Errorf("%v: %+v", r, e)
		}
	}
	own := into[api.Volume](t, as(b, text, "POST", "/v1/volumes", `{"name":"data"}`), 201)
	if own.Tenant != "acme" {
		t.Errorf("%+v", own)
	}
}
