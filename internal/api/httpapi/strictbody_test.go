package httpapi_test

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
)

// TestUnknownFieldsAreRefused sends bodies with an unknown field, at the top and below.
func TestUnknownFieldsAreRefused(t *testing.T) {
	b := newBench(t)
	b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":1}`)
	for _, c := range []struct{ method, path, body, field, near string }{
		{"POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":1,"bogus":1}`, "bogus", ""},
		{"POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":1,"networkk":{}}`, "networkk", "network"},
		{"POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":1,"network":{"bogus":1}}`, "network.bogus", "network."},
		{"POST", sb1 + "/exec", `{"args":["true"],"Timeout_Secs":1}`, "Timeout_Secs", "timeout_secs"},
		{"POST", sb1 + "/exec", `{"args":["true"],"timeout_sec":1}`, "timeout_sec", "timeout_secs"},
		{"POST", sb1 + "/pause", `{"Filesystem_only":true}`, "Filesystem_only", "filesystem_only"},
		{"PATCH", sb1 + "/life", `{"ttl":5}`, "ttl", "ttl_secs"},
		{"POST", sb1 + "/branch", `{"tags":"x"}`, "tags", "tag"},
	} {
		e := wantError(t, b.do(c.method, c.path, c.body), api.CodeInvalid)
		for _, word := range []string{`"` + c.field + `"`, `nearest known one is "` + c.near} {
			if !strings.Contains(e.Message, word) {
				t.Errorf("%s %s: %q does not contain %q", c.path, c.body, e.Message, word)
			}
		}
	}
	if w := b.do("POST", "/v1/sandboxes", `{"`+strings.Repeat("x", 9000)+`":1}`); w.Body.Len() > 3000 {
		t.Errorf("the error has %d bytes", w.Body.Len())
	}
}
