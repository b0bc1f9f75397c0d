package e2bapi_test

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/api/cors"
	"github.com/forkd/forkd/internal/api/e2bapi"
)

// TestMisspelledFieldsAreNamed creates sandboxes with fields that resemble known ones, and with new
// ones.
func TestMisspelledFieldsAreNamed(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ body, warning string }{
		{`{"templateID":"base","allow_internet_acces":false}`, `did you mean "allow_internet_access"?`},
		{`{"templateID":"base","allowInternetAcces":false}`, `ignored unknown field "allowInternetAcces"`},
		{`{"templateID":"base","network":{"denyOuts":[]}}`, `did you mean "network.denyOut"?`},
		{`{"templateID":"base","brandNewThing":1}`, ""},
		{`{"templateID":"base"}`, ""},
	} {
		a := b.do("POST", "/v2/sandboxes", c.body)
		got := a.Header.Get("X-Forkd-Warning")
		if a.StatusCode != 201 || !strings.Contains(got, c.warning) || (c.warning == "") != (got == "") {
			t.Errorf("%s: %s, warning %q, want %q", c.body, a.Status, got, c.warning)
		}
	}
	many := `{"templateID":"base"`
	for i := range 20 {
		many += `,"allow_internet_acces` + strings.Repeat("\\u00fc", i%3) + `":1,"timeou` + strings.Repeat("t", i%3+2) + `":1`
	}
	if got := b.do("POST", "/v2/sandboxes", many+"}").Header.Get("X-Forkd-Warning"); len(got) == 0 || len(got) > 500 {
		t.Errorf("a warning of %d bytes: %q", len(got), got)
	}
}

// TestPreflightsOfTheControlAPI sends preflights from a listed origin, and from another one.
func TestPreflightsOfTheControlAPI(t *testing.T) {
	b := newBench(t, func(o *e2bapi.Options) { o.CORS, _ = cors.Parse([]string{"https://app.test"}) })
	for origin, allowed := range map[string]bool{"https://app.test": true, "https://evil.test": false} {
		a := b.do("OPTIONS", "/sandboxes", "", "Origin", origin, "Access-Control-Request-Method", "POST")
		if a.StatusCode != 204 || (a.Header.Get("Access-Control-Allow-Origin") == origin) != allowed {
			t.Errorf("from %s: %s %v", origin, a.Status, a.Header)
		}
		a = b.do("GET", "/v2/sandboxes", "", "Origin", origin)
		if a.StatusCode != 200 || strings.Contains(a.Header.Get("Access-Control-Expose-Headers"), "X-Next-Token") != allowed {
			t.Errorf("a list for %s: %s %v", origin, a.Status, a.Header)
		}
	}
}
