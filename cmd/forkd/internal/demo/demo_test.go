package demo

import (
	"strings"
	"testing"
)

func TestChecksCanFail(t *testing.T) {
	good := func(i int, n string) answer {
		return answer{numpy: true, matrix: true, random: [3]string{n, n, n}, index: i}
	}
	var r Result
	if r.check([]answer{good(1, "0.1"), good(2, "0.2")}); len(r.Failures) != 0 {
		t.Fatalf("good children failed: %q", r.Failures)
	}
	cold, tainted := good(3, "0.3"), good(4, "0.4")
	cold.matrix, tainted.tainted = false, true
	r.check([]answer{good(1, "0.1"), good(2, "0.1"), cold, tainted})
	all := strings.Join(r.Failures, "\n")
	for _, want := range []string{"children 1 and 2 drew the same number from numpy", "urandom", "child 3 does not have the parent's heap", "child 4 sees a variable"} {
		if !strings.Contains(all, want) {
			t.Errorf("failures lack %q:\n%s", want, all)
		}
	}
}

func TestParse(t *testing.T) {
	a, err := parse("'True True False 0.5 0.25 00ff 7'")
	if err != nil || !a.numpy || a.tainted || a.index != 7 || a.random[2] != "00ff" {
		t.Fatalf("%+v, %v", a, err)
	}
	for _, bad := range []string{"", "'True'", "'a b c d e f g'"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q was parsed", bad)
		}
	}
}
