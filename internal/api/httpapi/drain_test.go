package httpapi_test

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/keys"
)

func TestADrainOverTheAPI(t *testing.T) {
	b := newBench(t)
	id := b.fork("2")[0].ID
	paused := b.fork("1")[0].ID
	b.do("POST", "/v1/sandboxes/"+paused+"/pause", "{}")
	if s := into[api.Drain](t, b.do("GET", "/v1/drain", ""), 200); s.Draining || len(s.Left) != 2 || s.Paused != 1 || s.Empty {
		t.Errorf("before: %+v", s)
	}
	if s := into[api.Drain](t, b.do("POST", "/v1/drain", `{"mode":"wait"}`), 200); !s.Draining || s.Mode != api.DrainWait || s.Empty {
		t.Errorf("ordered: %+v", s)
	}
	for name, call := range map[string][3]string{
		"fork":     {"POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`},
		"branch":   {"POST", "/v1/sandboxes/" + id + "/branch", `{"tag":"b"}`},
		"resume":   {"POST", "/v1/sandboxes/" + paused + "/resume", ``},
		"snapshot": {"POST", "/v1/snapshots", `{"tag":"new","image":"python-numpy"}`},
		"derived":  {"POST", "/v1/snapshots", `{"tag":"new","from":"py","exec":["true"]}`},
		"ready":    {"GET", "/readyz", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := b.do(call[0], call[1], call[2])
			wantError(t, w, api.CodeDraining)
			if w.Code != 503 {
				t.Errorf("status %d", w.Code)
			}
		})
	}
	if w := b.do("POST", "/v1/sandboxes/"+id+"/exec", `{"args":["echo","x"]}`); w.Code != 200 {
		t.Errorf("exec in a running sandbox: %d %s", w.Code, w.Body)
	}
	if text := b.do("GET", "/metrics", "").Body.String(); !strings.Contains(text, "forkd_draining 1\n") {
		t.Error("the metric does not show the drain")
	}
	b.do("POST", "/v1/drain", "{}") // pause is the default
	b.engine.Drain.Look(t.Context())
	if s := into[api.Drain](t, b.do("GET", "/v1/drain", ""), 200); !s.Empty || s.Mode != api.DrainPause || s.Paused != 3 {
		t.Errorf("drained: %+v", s)
	}
	for range 2 {
		if s := into[api.Drain](t, b.do("DELETE", "/v1/drain", ""), 200); s.Draining {
			t.Errorf("cancelled: %+v", s)
		}
	}
	if w := b.do("GET", "/readyz", ""); w.Code != 200 {
		t.Errorf("ready after the cancel: %d", w.Code)
	}
	if w := b.do("POST", "/v1/sandboxes/"+paused+"/resume", ""); w.Code != 200 {
		t.Errorf("resume after the cancel: %d %s", w.Code, w.Body)
	}
}

func TestOnlyTheOperatorDrains(t *testing.T) {
	b := newTenants(t)
	text := b.key(keys.Spec{Name: "one", Tenant: "one"})
	for _, method := range []string{"GET", "POST", "DELETE"} {
		if w := b.as(text, method, "/v1/drain", "{}"); w.Code != 403 {
			t.Errorf("%s with a tenant's key: %d", method, w.Code)
		}
	}
}

func TestADrainOfAnUnknownMode(t *testing.T) {
	b := newBench(t)
	wantError(t, b.do("POST", "/v1/drain", `{"mode":"kill"}`), api.CodeInvalid)
	if s := into[api.Drain](t, b.do("GET", "/v1/drain", ""), 200); s.Draining {
		t.Errorf("after it: %+v", s)
	}
}
