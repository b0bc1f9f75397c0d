package kvmtest

import (
	"strconv"
	"testing"
)

func TestHalfOfTheTestsAreDrawn(t *testing.T) {
	n, differ := 0, 0
	for seed := range uint64(400) {
		if drawn(seed, "TestA") {
			n++
		}
		if drawn(seed, "TestA") != drawn(seed, "TestB") {
			differ++
		}
	}
	if n < 150 || n > 250 {
		t.Errorf("%d of 400 seeds draw the test, want about half", n)
	}
	if differ < 150 {
		t.Errorf("%d of 400 seeds draw one of two tests: they depend on each other", differ)
	}
}

func TestAllTestsRunInASoakAndByHand(t *testing.T) {
	for seed := range 50 {
		t.Setenv(SeedVariable, strconv.Itoa(seed))
		t.Setenv(DrawVariable, "1")
		t.Setenv(SoakVariable, "1m")
		Drawn(t)
		t.Setenv(DrawVariable, "")
		t.Setenv(SoakVariable, "")
		Drawn(t)
	}
	if t.Skipped() {
		t.Error("skipped")
	}
}
