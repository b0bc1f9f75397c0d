package httpapi_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
)

type operation struct {
	OperationID string `json:"operationId"`
	Summary     string `json:"summary"`
	RequestBody *struct {
		Content map[string]struct {
			Schema struct {
				Ref string `json:"$ref"`
			} `json:"schema"`
		} `json:"content"`
	} `json:"requestBody"`
	Responses map[string]struct {
		Content map[string]struct {
			Schema map[string]any `json:"schema"`
		} `json:"content"`
	} `json:"responses"`
}

type document struct {
	OpenAPI    string                          `json:"openapi"`
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas map[string]struct {
			Properties map[string]struct {
				Description string `json:"description"`
				Ref         string `json:"$ref"`
			} `json:"properties"`
		} `json:"schemas"`
	} `json:"components"`
}

func (b *bench) document() document {
	b.t.Helper()
	return into[document](b.t, b.do("GET", "/openapi.json", ""), 200)
}

// each calls f for every operation of the document.
func (d document) each(f func(method, path string, op operation)) {
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(d.Paths[path])) {
			f(strings.ToUpper(method), path, d.Paths[path][method])
		}
	}
}

func concrete(path string) string {
	return strings.NewReplacer("{tag}", "py", "{digest}", "sha256:"+strings.Repeat("0", 64), "{other}", "py", "{id}", "sb-none", "{name}", "python-numpy", "{path}", "health", "{workspace}", "none", "{secret}", "NONE", "{service}", "none", "{volume}", "none", "{network}", "none").Replace(path)
}

func TestEveryDocumentedOperationIsRouted(t *testing.T) {
	b := newBench(t)
	n := 0
	b.document().each(func(method, path string, op operation) {
		n++
		w := b.do(method, concrete(path), "")
		if w.Code == http.StatusMethodNotAllowed || strings.Contains(w.Body.String(), "no such path") {
			t.Errorf("%s %s is documented and answers %d %s", method, path, w.Code, w.Body)
		}
		if op.OperationID == "" || op.Summary == "" {
			t.Errorf("%s %s has no id or no summary", method, path)
		}
	})
	if n < 20 {
		t.Errorf("the document has %d operations", n)
	}
}

func TestEveryRouteIsDocumented(t *testing.T) {
	b := newBench(t)
	doc := b.document()
	page, err := os.ReadFile("../../../docs/use/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range b.server.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if _, ok := doc.Paths[path][strings.ToLower(method)]; !ok {
			t.Errorf("%s is not in /openapi.json", route)
		}
		if !strings.Contains(string(page), "`"+route+"`") {
			t.Errorf("docs/use/api.md does not have `%s`", route)
		}
	}
}

func TestEveryFieldIsDocumented(t *testing.T) {
	for name, schema := range newBench(t).document().Components.Schemas {
		for field, p := range schema.Properties {
			if p.Description == "" && p.Ref == "" {
				t.Errorf("schema %s: field %s says nothing about itself", name, field)
			}
		}
	}
}

func TestEveryErrorResponseHasTheOneSchema(t *testing.T) {
	newBench(t).document().each(func(method, path string, op operation) {
		for status, r := range op.Responses {
			if status < "400" {
				continue
			}
			if ref := r.Content["application/json"].Schema["$ref"]; ref != "#/components/schemas/Error" {
				t.Errorf("%s %s: response %s has schema %v", method, path, status, ref)
			}
			if status == "422" {
				t.Errorf("%s %s documents 422, bad input is 400", method, path)
			}
		}
	})
}

func TestOnlyProbesWorkWithoutToken(t *testing.T) {
	b := newBench(t)
	b.document().each(func(method, path string, _ operation) {
		for _, auth := range []string{"", "Bearer wrong", "Bearer ", "Basic " + token, token} {
			r := httptest.NewRequest(method, concrete(path), nil)
			r.Header.Set("Authorization", auth)
			w := httptest.NewRecorder()
			b.h.ServeHTTP(w, r)
			switch path {
			case "/healthz":
				into[api.Health](t, w, 200)
				continue
			case "/readyz":
				into[api.Readiness](t, w, 200)
				continue
			}
			if w.Code != http.StatusUnauthorized {
				t.Errorf("%s %s with Authorization %q: status %d", method, path, auth, w.Code)
			}
		}
	})
}

func TestBadNamesAreRefusedOnEveryRoute(t *testing.T) {
	b := newBench(t)
	bad := []string{"..%2F..%2Fetc", "a%20b", "a.b", "%00", strings.Repeat("x", 65), "a%2Fb", "%2e%2e", "ä"}
	b.document().each(func(method, path string, _ operation) {
		if !strings.Contains(path, "{") {
			return
		}
		for _, name := range bad {
			p := strings.NewReplacer("{tag}", name, "{other}", name, "{id}", name, "{name}", name, "{port}", "80", "{digest}", "sha256:"+strings.Repeat("0", 64), "{path}", "health", "{workspace}", name, "{secret}", name, "{service}", name, "{volume}", name, "{network}", name).Replace(path)
			if w := b.do(method, p, `{"size":1}`); w.Code != http.StatusBadRequest {
				t.Errorf("%s %s: status %d, body %s", method, p, w.Code, w.Body)
			}
		}
	})
}

func TestPathsAreNotRedirected(t *testing.T) {
	b := newBench(t)
	for _, path := range []string{"/v1/snapshots/../sandboxes", "/v1//snapshots", "/./version"} {
		wantError(t, b.do("GET", path, ""), api.CodeInvalid)
	}
	wantError(t, b.do("GET", "/nothing", ""), api.CodeNotFound)
	w := b.do("PATCH", "/v1/snapshots", "")
	wantError(t, w, api.CodeMethod)
	if allow := w.Header().Get("Allow"); !strings.Contains(allow, "POST") {
		t.Errorf("Allow is %q", allow)
	}
}

func TestCodesHaveOneMeaning(t *testing.T) {
	seen := map[api.Code]bool{}
	for _, row := range api.Codes() {
		if seen[row.Code] {
			t.Errorf("%s is there twice", row.Code)
		}
		seen[row.Code] = true
		if row.Exit < 1 || row.Exit > 123 && row.Code != api.CodeInterrupted || row.Meaning == "" {
			t.Errorf("%s has exit code %d, meaning %q", row.Code, row.Exit, row.Meaning)
		}
	}
}

func TestReasonsHaveOneMeaning(t *testing.T) {
	page, err := os.ReadFile("../../../docs/use/api.md")
	if err != nil {
		t.Fatal(err)
	}
	ofClient := map[api.Reason]bool{
		api.ReasonAgentLinks: true, api.ReasonGuestDirectoryMissing: true, api.ReasonLocalDirectoryMissing: true,
		api.ReasonMaybeDone: true, api.ReasonTLSClientCertificate: true, api.ReasonTLSScheme: true, api.ReasonTLSUntrusted: true,
	}
	seen := map[api.Reason]bool{}
	for _, row := range api.Reasons() {
		if seen[row.Reason] || row.Meaning == "" {
			t.Errorf("%s is there twice, or means nothing", row.Reason)
		}
		seen[row.Reason] = true
		if !ofClient[row.Reason] && !strings.Contains(string(page), "`"+string(row.Reason)+"`") {
			t.Errorf("docs/use/api.md does not have reason %s", row.Reason)
		}
	}
}

func TestOpenAPIDocumentIsStable(t *testing.T) {
	b := newBench(t)
	first, err := b.server.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	second, err := newBench(t).server.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	if string(first) != string(second) || !json.Valid(first) {
		t.Error("two servers describe themselves differently")
	}
}
