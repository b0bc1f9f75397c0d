package jailtest

import "testing"

func TestEveryAttemptHasAnOutcome(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range Attempts() {
		if o, ok := Outcomes[a.Name]; !ok || o.Alone == "" || seen[a.Name] {
			t.Errorf("%q has the outcome %+v, or is there twice", a.Name, o)
		}
		seen[a.Name] = true
	}
	if len(seen) < 80 || len(seen) != len(Outcomes) {
		t.Errorf("%d attempts have %d outcomes", len(seen), len(Outcomes))
	}
}

func TestAnswers(t *testing.T) {
	if got := Answer(nil); got != OK {
		t.Error(got)
	}
	if got := Answer(errNothing); got != Nothing {
		t.Error(got)
	}
	if a, ok := Named("a file of the host"); !ok || a.Try(World{}) != OK {
		t.Errorf("%+v: outside of a jail it can be read", a)
	}
	if _, ok := Named("a chair"); ok || Is("EPERM", "ESRCH EACCES") || !Is("EPERM", "ok EPERM") || Is("", "") {
		t.Error("what there is not is there")
	}
}
