package httpapi_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestATenantLearnsNoHostFacts searches a tenant's answers for paths and process IDs of the
// daemon's host. Guests' own paths and IDs belong to the tenant.
func TestATenantLearnsNoHostFacts(t *testing.T) {
	b := newTenants(t)
	answers := map[string]*httptest.ResponseRecorder{
		"fork":   b.as(b.acme, "POST", "/v1/sandboxes", `{"snapshot_tag":"base","n":2}`),
		"branch": b.as(b.acme, "POST", "/v1/sandboxes/"+b.sandbox+"/branch", `{"tag":"b","n":1}`),
	}
	for _, path := range []string{"/v1/sandboxes", "/v1/sandboxes/" + b.sandbox, "/v1/snapshots", "/v1/snapshots/base",
		"/v1/snapshots/base/info", "/v1/snapshots/py/info", "/v1/images", "/v1/pools", "/v1/sandboxes/" + b.sandbox + "/memory"} {
		answers[path] = b.as(b.acme, "GET", path, "")
	}
	for name, w := range answers {
		if w.Code >= 400 && w.Code != 403 && w.Code != 404 && w.Code != 405 {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		var v any
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
			continue
		}
		walk(name, v, func(at, key string, v any) {
			if text, is := v.(string); is && strings.Contains(text, "/var/lib/forkd") {
				t.Errorf("%s: %s is %q", at, key, text)
			}
			if key == "pid" && v != nil {
				t.Errorf("%s: pid is %v", at, v)
			}
		})
	}
	operator := b.do("GET", "/v1/sandboxes/"+b.sandbox, "")
	if !strings.Contains(operator.Body.String(), `"pid":1`) {
		t.Errorf("the operator does not see the process: %s", operator.Body)
	}
}

// walk calls look for each field below v.
func walk(at string, v any, look func(at, key string, v any)) {
	switch v := v.(type) {
	case map[string]any:
		for key, field := range v {
			look(at, key, field)
			walk(at+"."+key, field, look)
		}
	case []any:
		for _, element := range v {
			walk(at+"[]", element, look)
		}
	}
}
