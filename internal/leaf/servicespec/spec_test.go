package servicespec

import (
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

// A declaration with another liveness replaces the service.
func TestAnotherLivenessIsAnotherDeclaration(t *testing.T) {
	a := Spec{Name: "web", Command: []string{"serve"}, Port: 80, Liveness: Liveness{IntervalMS: 1000}}
	b := a
	if b.Liveness.FailureThreshold = 5; !a.Equal(a) || a.Equal(b) {
		t.Errorf("%+v and %+v", a, b)
	}
}
