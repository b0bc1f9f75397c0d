package netpolicy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func specOf(secrets map[string]string) Spec {
	return Spec{Default: Public, Headers: []HeaderRule{{Host: "api.example.com", Headers: map[string]string{"X-Plain": "{LITERAL}"},
		Secrets: secrets}}}
}

func known(values map[string]string) func(string) (string, error) {
	return func(name string) (string, error) {
		if v, ok := values[name]; ok {
			return v, nil
		}
		return "", fmt.Errorf("secret %s not found", name)
	}
}

func headersOf(t *testing.T, s Spec) map[string]string {
	t.Helper()
	p, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	return p.Headers("api.example.com")
}

func TestReferencesBecomeValues(t *testing.T) {
	s := specOf(map[string]string{"Authorization": "Bearer {KEY}", "X-Both": "{A}:{B}"})
	got := headersOf(t, s.WithSecrets(known(map[string]string{"KEY": "sk-1", "A": "{B}", "B": "2"})))
	want := map[string]string{"X-Plain": "{LITERAL}", "Authorization": "Bearer sk-1", "X-Both": "{B}:2"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if s.Headers[0].Secrets["Authorization"] != "Bearer {KEY}" || s.Headers[0].Headers["Authorization"] != "" {
		t.Error("the policy with the reference has changed", s)
	}
}

func TestWithoutASecretTheRequestsAreRefused(t *testing.T) {
	s := specOf(map[string]string{"Authorization": "Bearer {KEY}"})
	for what, value := range map[string]func(string) (string, error){
		"not found":       known(nil),
		"not valid there": known(map[string]string{"KEY": "two\r\nlines"}),
		"is not valid":    known(map[string]string{"KEY": strings.Repeat("x", maxHeaderValue)}),
		"no key":          func(string) (string, error) { return "", errors.New("this daemon has no key") },
	} {
		got := headersOf(t, s.WithSecrets(value))
		if why := got[Incomplete]; len(got) != 1 || !strings.Contains(why, what) || strings.Contains(why, "lines") {
			t.Errorf("%s: %v", what, got)
		}
	}
	if got := headersOf(t, s); got[Incomplete] == "" || len(got) != 1 {
		t.Error("an unresolved policy adds headers", got)
	}
}

func TestTemplatesThatAreNone(t *testing.T) {
	for what, secrets := range map[string]map[string]string{
		"no name":       {"Authorization": "Bearer key"},
		"an empty one":  {"Authorization": "Bearer {}"},
		"open":          {"Authorization": "Bearer {KEY} {"},
		"nested":        {"Authorization": "{{KEY}}"},
		"a digit first": {"Authorization": "{1KEY}"},
		"a literal too": {"X-Plain": "{KEY}"},
		"reserved":      {"Host": "{KEY}"},
		"a line's end":  {"Authorization": "Bearer\n{KEY}"},
		"no header":     {"": "{KEY}"},
	} {
		if _, err := Compile(specOf(secrets)); err == nil {
			t.Error(what)
		}
	}
	if _, err := Compile(Spec{Headers: []HeaderRule{{Host: "a.example.com"}}}); err == nil {
		t.Error("a rule without headers")
	}
}

func TestWhatIsInherited(t *testing.T) {
	s := specOf(map[string]string{"Authorization": "Bearer {KEY}"})
	s.Headers = append(s.Headers, HeaderRule{Host: "b.example.com", Headers: map[string]string{"X": "y"}})
	if got := s.ReferencesOnly(); len(got.Headers) != 1 || got.Headers[0].Headers != nil || len(got.Headers[0].Secrets) != 1 {
		t.Error(got)
	}
	if got := s.WithoutReferences(); len(got.Headers) != 2 || got.Headers[0].Secrets != nil {
		t.Error(got)
	}
	if got := s.ReferencesOnly().WithoutReferences(); got.Headers != nil {
		t.Error(got)
	}
}

func TestReferencesInAFile(t *testing.T) {
	s, err := ParseFile("p", []byte("default: deny\nallow: [api.example.com]\nheaders:\n- host: api.example.com\n  secrets: {Authorization: \"Bearer {KEY}\"}\n"))
	if err != nil || s.Headers[0].Secrets["Authorization"] != "Bearer {KEY}" {
		t.Error(s, err)
	}
	if _, err := ParseFile("p", []byte("headers:\n- host: api.example.com\n  missing: x\n")); err == nil {
		t.Error("a file sets what only the daemon sets")
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add("Bearer {KEY}")
	f.Add("{{A}}")
	f.Add("{A}{B}")
	f.Fuzz(func(t *testing.T, text string) {
		s := specOf(map[string]string{"Authorization": text})
		if _, err := Compile(s); err != nil {
			return
		}
		got := s.WithSecrets(func(string) (string, error) { return "v", nil }).Headers[0]
		if got.Missing == "" && (strings.ContainsAny(got.Headers["Authorization"], "{}") || checkHeaders(got.Headers) != nil) {
			t.Fatal(got)
		}
	})
}
