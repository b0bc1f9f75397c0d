package tracecontext

import (
	"net/http"
	"strings"
	"testing"
)

const (
	trace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	parent = "00-" + trace + "-00f067aa0ba902b7-01"
)

func TestFromHeader(t *testing.T) {
	for _, c := range []struct {
		name          string
		parents       []string
		states        []string
		parent, state string // wanted variables
	}{
		{"valid", []string{parent}, []string{"a=1", " b@c=2 ,,"}, parent, "a=1,b@c=2"},
		{"later version with a field", []string{"cc" + parent[2:] + "-x"}, nil, parent, ""},
		{"unknown flags are cleared", []string{parent[:53] + "ff"}, nil, parent[:53] + "03", ""},
		{"no header", nil, []string{"a=1"}, "", ""},
		{"two headers", []string{parent, parent}, nil, "", ""},
		{"version ff", []string{"ff" + parent[2:]}, nil, "", ""},
		{"version 00 with a field", []string{parent + "-x"}, nil, "", ""},
		{"later version with a wrong separator", []string{"cc" + parent[2:] + "x"}, nil, "", ""},
		{"upper case", []string{strings.ToUpper(parent)}, nil, "", ""},
		{"foreign letter inside", []string{strings.Replace(parent, "f92", "f\n2", 1)}, nil, "", ""},
		{"zero trace", []string{"00-" + strings.Repeat("0", 32) + parent[35:]}, nil, "", ""},
		{"zero parent", []string{parent[:36] + strings.Repeat("0", 16) + "-01"}, nil, "", ""},
		{"short", []string{parent[:54]}, nil, "", ""},
		{"state with a key twice", []string{parent}, []string{"a=1,a=2"}, parent, ""},
		{"state with a bad key", []string{parent}, []string{"aBc=1"}, parent, ""},
		{"state with a newline", []string{parent}, []string{"a=1\nb"}, parent, ""},
		{"large state", []string{parent}, []string{"a=" + strings.Repeat("x", 200), "b=" + strings.Repeat("x", 200),
			"c=" + strings.Repeat("x", 200)}, parent, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := FromHeader(http.Header{"Traceparent": c.parents, "Tracestate": c.states}).Environ()
			if env[EnvParent] != c.parent || env[EnvState] != c.state {
				t.Errorf("got %q, want %q and %q", env, c.parent, c.state)
			}
		})
	}
}

func FuzzFromHeader(f *testing.F) {
	f.Add(parent, "a=1,b=2")
	f.Add("cc"+parent[2:]+"-x", "")
	f.Fuzz(func(t *testing.T, p, s string) {
		c := FromHeader(http.Header{"Traceparent": {p}, "Tracestate": {s}})
		env := c.Environ()
		again := FromHeader(http.Header{"Traceparent": {env[EnvParent]}, "Tracestate": {env[EnvState]}})
		if c != again {
			t.Fatalf("%+v is read again as %+v", c, again)
		}
		if strings.ContainsAny(env[EnvParent]+env[EnvState], "\x00\r\n") || len(env[EnvState]) > maxState {
			t.Fatalf("unsafe variables %q", env)
		}
	})
}
