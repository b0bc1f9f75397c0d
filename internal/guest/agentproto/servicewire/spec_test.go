package servicewire

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDeclarationsAreChecked(t *testing.T) {
	good := Spec{Name: "web-1", Command: []string{"serve"}, Port: 80, Ready: Ready{HTTP: "/health"}}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Spec){
		"small letters":        func(s *Spec) { s.Name = "../x" },
		"zero byte":            func(s *Spec) { s.Command = []string{"a\x00"} },
		"at most 64":           func(s *Spec) { s.Command = make([]string, 65); s.Command[0] = "a" },
		"environment of":       func(s *Spec) { s.Env = map[string]string{"A": strings.Repeat("x", maxText)} },
		"exclude each other":   func(s *Spec) { s.Ready.Command = []string{"true"} },
		"starts with /":        func(s *Spec) { s.Ready.HTTP = "http://evil" },
		"stop_signal \"SIGFOO": func(s *Spec) { s.StopSignal = "SIGFOO" },
		"want 0 to 86400000":   func(s *Spec) { s.StopMS = -1 },
		"is below initial_ms":  func(s *Spec) { s.Backoff = Backoff{InitialMS: 100, MaxMS: 50} },
		"at least 10":          func(s *Spec) { s.Backoff.InitialMS = 1 },
		"liveness interval":    func(s *Spec) { s.Liveness = Liveness{IntervalMS: 999} },
		"no check to repeat":   func(s *Spec) { s.Port, s.Ready, s.Liveness = 0, Ready{}, Liveness{IntervalMS: 1000} },
		"liveness timeout_ms":  func(s *Spec) { s.Liveness = Liveness{IntervalMS: 1000, TimeoutMS: 1} },
		"failure_threshold":    func(s *Spec) { s.Liveness = Liveness{IntervalMS: 1000, FailureThreshold: 1001} },
		"interval_ms 0":        func(s *Spec) { s.Liveness = Liveness{FailureThreshold: 1} },
		"interval_ms 86400001": func(s *Spec) { s.Liveness = Liveness{IntervalMS: 86400001} },
		"want 4096 to":         func(s *Spec) { s.LogBytes = 1 },
		"as JSON":              func(s *Spec) { s.Command = []string{strings.Repeat("\x01", maxText-1)} },
	} {
		bad := good
		change(&bad)
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := CheckAll([]Spec{good, good}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Error(err)
	}
}

// No answer of a guest passes the check with impossible values.
func FuzzParseList(f *testing.F) {
	code := 3
	b, err := json.Marshal(List{[]Status{{Spec: Spec{Name: "web", Command: []string{"a"}}, State: IsReady, ExitCode: &code}}})
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
		if len(l.Services) > MaxServices {
			t.Fatal("too many services")
		}
		for _, s := range l.Services {
			if s.Spec.Check() != nil || s.Restarts < 0 || s.LogLost > s.LogBytes || len(s.Error) > maxError ||
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
		"error":    service(`,"error":"` + strings.Repeat("x", maxError+1) + `"`),
		"bytes":    strings.Repeat(" ", MaxListBytes+1),
	} {
		if _, err := ParseList([]byte(answer)); err == nil || !strings.Contains(err.Error(), "broke its protocol") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A declaration with another liveness replaces the service.
func TestAnotherLivenessIsAnotherDeclaration(t *testing.T) {
	a := Spec{Name: "web", Command: []string{"serve"}, Port: 80, Liveness: Liveness{IntervalMS: 1000}}
	b := a
	if b.Liveness.FailureThreshold = 5; !a.Equal(a) || a.Equal(b) {
		t.Errorf("%+v and %+v", a, b)
	}
}
