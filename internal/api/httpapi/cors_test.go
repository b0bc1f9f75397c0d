package httpapi_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/cors"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
)

// TestPreflights sends requests from pages of two origins. Only one of them is listed.
func TestPreflights(t *testing.T) {
	b := newBench(t)
	listed, err := cors.Parse([]string{"https://app.test"})
	if err != nil {
		t.Fatal(err)
	}
	h := httpapi.New(httpapi.Options{Engine: fakeengine.Roles(b.engine), Images: b.images, CORS: listed}).Handler(auth.Access{Token: token})
	for origin, want := range map[string]string{"https://app.test": "https://app.test", "https://evil.test": ""} {
		for _, method := range []string{"OPTIONS", "GET"} {
			r := httptest.NewRequest(method, "/v1/sandboxes", nil)
			r.Header.Set("Origin", origin)
			if r.Method == "OPTIONS" {
				r.Header.Set("Access-Control-Request-Method", "POST")
			} else {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			got := w.Header()
			if w.Code >= 300 || got.Get("Access-Control-Allow-Origin") != want || got.Get("Access-Control-Allow-Credentials") != "" ||
				(want != "") != strings.Contains(got.Get("Access-Control-Expose-Headers"), "X-Next-Token") {
				t.Errorf("%s from %s: %d %v", method, origin, w.Code, got)
			}
		}
	}
}
