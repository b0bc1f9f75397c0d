package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
)

// A service's log is followed until the client leaves, and the sandbox's end ends it.
func TestAServiceIsFollowed(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	path := "/v1/sandboxes/" + id + "/services/web"
	into[api.Service](t, b.do("PUT", path, `{"command":["serve","x"]}`), 200)
	if w := b.do("GET", path+"/log?tail=1", ""); w.Code != http.StatusOK || w.Body.String() != "serve x\n" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	began := time.Now()
	if w := b.do("GET", "/v1/sandboxes/"+id+"/services?wait_secs=30", ""); !strings.Contains(w.Body.String(), `"ready"`) {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("waited %s for a service that is ready", took)
	}
	for query, code := range map[string]int{"?tail=-1": 400, "?tail=x": 400, "?follow=maybe": 400, "?tail=0": 200} {
		if w := b.do("GET", path+"/log"+query, ""); w.Code != code {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
	for body, code := range map[string]int{
		`{"command":[]}`:                                     400,
		`{"command":["a"],"restart":"often"}`:                400,
		`{"command":["a"],"log_kib":1}`:                      400,
		`{"command":["a"],"ready":{"http":"/"}}`:             400,
		`{"command":["a"],"backoff":{"initial_ms":1}}`:       400,
		`{"command":["a\u0000b"]}`:                           400,
		`{"command":["a"],"stop_timeout_secs":-1}`:           400,
		`{"command":["a"],"surprise":true}`:                  400,
		`{"command":["` + strings.Repeat("x", 20000) + `"]}`: 400,
	} {
		if w := b.do("PUT", path, body); w.Code != code {
			t.Errorf("%.80s: %d %s", body, w.Code, w.Body)
		}
	}
	if w := b.do("POST", path, `{"action":"explode"}`); w.Code != 400 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py","services":[{"name":"a","command":["x"]},{"name":"a","command":["y"]}]}`); w.Code != 400 ||
		!strings.Contains(w.Body.String(), "twice") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
