package httpapi

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/membudget"
)

// Output is charged as it is kept, the answer in place of it, and nothing is charged in the end.
func TestOutputIsChargedAsItIsKept(t *testing.T) {
	b := membudget.New(1000)
	a := &account{budget: b}
	if n := a.keep("t", 300); n != 300 {
		t.Fatalf("%d of 300 bytes may be kept", n)
	}
	other := &account{budget: b}
	if n := other.keep("t", 1000); n <= 0 || n > 400 {
		t.Errorf("beside 300 bytes that are kept, %d of 1000 may be", n)
	}
	other.release()
	out, errs := strings.Repeat("o", 200), strings.Repeat("e", 100)
	if dropped := a.fit("t", &out, &errs); dropped != 0 || a.held != 300 {
		t.Errorf("%d bytes are dropped, %d held", dropped, a.held)
	}
	short := ""
	if dropped := a.fit("t", &short); dropped != 0 || a.held != 0 {
		t.Errorf("an empty answer holds %d bytes", a.held)
	}
	long := strings.Repeat("l", 2000)
	if dropped := a.fit("t", &long); int64(len(long)) != a.held || dropped != 2000-a.held || a.held > 500 {
		t.Errorf("a long answer has %d bytes, holds %d, and %d are dropped", len(long), a.held, dropped)
	}
	a.release()
	if !b.Charge("t", 500) {
		t.Error("something is still charged")
	}
}
