package netpolicy

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestParseFile(t *testing.T) {
	got, err := ParseFile("p.yaml", []byte(`
# what the build needs
default: none
allow:
  - example.com:443
  - "*.pypi.org:443"
  - 10.0.0.0/8
  - 2001:db8::1
deny: []
https_ports: [8443]
headers:
  - host: api.example.com
    headers:
      Authorization: Bearer abc
limits:
  flows: 10
  bytes_per_second: 1000000
`))
	want := Spec{
		Default: Deny, Allow: []string{"example.com:443", "*.pypi.org:443", "10.0.0.0/8", "2001:db8::1"}, HTTPSPorts: []uint16{8443},
		Headers: []HeaderRule{{Host: "api.example.com", Headers: map[string]string{"Authorization": "Bearer abc"}}},
		Limits:  Limits{Flows: 10, BytesPerSecond: 1000000},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestMistakesInFilesHaveALine(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "p.yaml: is empty",
		"default: deny\nallwo:\n  - a.test\n":  `p.yaml:2: unknown key "allwo"; the keys are`,
		"limits:\n  flow: 1\n":                 `p.yaml:2: unknown key "flow"`,
		"default: maybe\n":                     "p.yaml:1: default is deny or public",
		"allow:\n  - a.test\n  - b.test:99999": `p.yaml:3: allow: rule "b.test:99999": "99999" is no port`,
		"deny:\n  - https://a.test/\n":         `p.yaml:2: deny: rule "https://a.test/": is a URL`,
		"allow:\n  - *.example.com\n":          "quotes",
		"allow:\n  - [::1]:443\n":              "quotes",
		"allow: a.test\n":                      "p.yaml:1: ",
		"allow:\n  - a: b\n":                   "p.yaml:2: ",
		"https_ports: [0]\n":                   "https_ports: 0 is no port",
		"https_ports: [70000]\n":               "p.yaml:1: ",
		"limits:\n  flows: -1\n":               "flows is a number from 1",
		"allow: [a.test]\nallow: [b.test]\n":   "p.yaml:2: ",
		"headers:\n  - host: '*.a.test'\n    headers: {A: b}\n":             "without *",
		"headers:\n  - host: a.test\n    headers: {Host: b}\n":              "Host is not for rules",
		"headers:\n  - host: a.test\n    headers: {A: \"b\\r\\nC: d\"}\n":   "control character",
		"allow: " + strings.Repeat("[", 50000):                              "p.yaml:1: is nested too deep",
		strings.Repeat("- ", 50000) + "a":                                   "p.yaml:1: is nested too deep",
		"headers:\n  - host: a.test\n    headers: {\"A B\": secretvalue}\n": "no header's name",
	} {
		_, err := ParseFile("p.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secretvalue") {
			t.Errorf("%q: the error has the secret: %v", text, err)
		}
	}
}

func TestAllMistakesAreToldAtOnce(t *testing.T) {
	_, err := ParseFile("p.yaml", []byte("allow:\n  - a b\n  - ok.test\ndeny:\n  - '*'\n"))
	if err == nil || !strings.Contains(err.Error(), "p.yaml:2:") || !strings.Contains(err.Error(), "p.yaml:5:") {
		t.Errorf("got %v", err)
	}
}

func TestSpecAsJSON(t *testing.T) {
	for text, want := range map[string]Default{
		`{}`: "", `{"default":"none"}`: Deny, `{"default":"deny"}`: Deny, `{"default":"Public"}`: Public, `{"default":"allow"}`: Public,
	} {
		var s Spec
		if err := json.Unmarshal([]byte(text), &s); err != nil || s.Default != want {
			t.Errorf("%s: got %q, %v", text, s.Default, err)
		}
	}
	var s Spec
	if err := json.Unmarshal([]byte(`{"default":"maybe"}`), &s); err == nil {
		t.Error("maybe is a default")
	}
	b, err := json.Marshal(Spec{Default: Public, Allow: []string{"a.test"}})
	if err != nil || string(b) != `{"default":"public","allow":["a.test"]}` {
		t.Errorf("got %s, %v", b, err)
	}
	if _, err := Compile(Spec{Default: "maybe"}); err == nil {
		t.Error("a Spec with a wrong default compiles")
	}
}

func FuzzPolicyFile(f *testing.F) {
	f.Add([]byte("default: public\nallow: [a.test]\nlimits: {flows: 3}\n"))
	f.Add([]byte("allow:\n  - &a a.test\n  - *a\n"))
	f.Add([]byte("headers:\n- host: a\n  headers: {A: b}\n"))
	if b, err := os.ReadFile("testdata/policy.yaml"); err == nil {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseFile("p", b)
		if err != nil {
			return
		}
		if _, err := Compile(s); err != nil {
			t.Errorf("%q is read, and does not compile: %v", b, err)
		}
	})
}
