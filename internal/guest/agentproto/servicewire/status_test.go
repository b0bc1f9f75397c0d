package servicewire

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// No answer of a guest passes the check with impossible values.
func FuzzParseList(f *testing.F) {
	code := 3
	b, err := json.Marshal(List{[]servicespec.Status{{Spec: servicespec.Spec{Name: "web", Command: []string{"a"}}, State: servicespec.IsReady, ExitCode: &code}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"services":[{"spec":{"name":"a","command":["b"]},"state":"on fire"}]}`))
	f.Add([]byte(`{"services":[{"spec":{"name":"a","command":["b"]},"state":"ready","restarts":-1}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := ParseList(b)
		if err != nil {
			return
		}
		if len(l.Services) > servicespec.MaxServices {
			t.Fatal("too many services")
		}
		for _, s := range l.Services {
			if s.Spec.Check() != nil || s.Restarts < 0 || s.LogLost > s.LogBytes || len(s.Error) > 1024 ||
				s.ExitCode != nil && (*s.ExitCode < -1 || *s.ExitCode > 255) {
				t.Fatalf("passed: %+v", s)
			}
		}
	})
}

func TestAnswersOfALiar(t *testing.T) {
	service := func(rest string) string {
		return `{"services":[{"spec":{"name":"a","command":["b"]},"state":"ready"` + rest + `}]}`
	}
	if _, err := ParseList([]byte(service(""))); err != nil {
		t.Fatal(err)
	}
	for what, answer := range map[string]string{
		"state":    `{"services":[{"spec":{"name":"a","command":["b"]},"state":"x"}]}`,
		"no JSON":  `{"services":`,
		"more":     `{"services":[` + strings.Repeat(`{},`, 20) + `{}]}`,
		"process":  service(`,"pid":-1`),
		"exit":     service(`,"exit_code":999`),
		"counters": service(`,"log_lost":5`),
		"large":    service(`,"restarts":9223372036854775807`),
		"time":     service(`,"since_ns":9223372036854775807`),
		"error":    service(`,"error":"` + strings.Repeat("x", 1024+1) + `"`),
		"bytes":    strings.Repeat(" ", MaxListBytes+1),
	} {
		if _, err := ParseList([]byte(answer)); err == nil || !strings.Contains(err.Error(), "broke its protocol") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
