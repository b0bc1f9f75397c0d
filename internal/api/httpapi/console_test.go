package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
)

func TestConsoleFollowedToItsEnd(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	for _, bad := range []string{"follow=perhaps", "follow=true&tail=-1", "follow=true&tail=x", "tail=3"} {
		wantError(t, b.do("GET", "/v1/sandboxes/"+id+"/console?"+bad, ""), api.CodeInvalid)
	}
	wantError(t, b.do("GET", "/v1/sandboxes/sb-none/console?follow=true", ""), api.CodeNotFound)
	b.engine.Fail(id, "it ended")
	w := b.do("GET", "/v1/sandboxes/"+id+"/console?follow=true&tail=1", "")
	if w.Code != http.StatusOK || strings.Contains(w.Body.String(), "Linux") || !strings.Contains(w.Body.String(), "ready") {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	if h := w.Header(); h.Get("Content-Type") != "text/plain; charset=utf-8" || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v", h)
	}
}
