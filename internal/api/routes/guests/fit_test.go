package guests

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/leaf/membudget"
)

// Output is charged as it is stored. Then the answer is charged in its place, and in the end the
// charge is zero.
func TestOutputIsChargedAsItIsKept(t *testing.T) {
	b := membudget.New(1000)
	a := b.Account(1000)
	if n := a.ChargeUpTo(300); n != 300 {
		t.Fatalf("%d of 300 bytes may be kept", n)
	}
	other := b.Account(1000)
	if n := other.ChargeUpTo(1000); n <= 0 || n > 400 {
		t.Errorf("beside 300 bytes that are kept, %d of 1000 may be", n)
	}
	other.Close()
	out, errs := strings.Repeat("o", 200), strings.Repeat("e", 100)
	if dropped := fit(a, &out, &errs); dropped != 0 || a.Held() != 300 {
		t.Errorf("%d bytes are dropped, %d held", dropped, a.Held())
	}
	short := ""
	if dropped := fit(a, &short); dropped != 0 || a.Held() != 0 {
		t.Errorf("an empty answer holds %d bytes", a.Held())
	}
	long := strings.Repeat("l", 2000)
	if dropped := fit(a, &long); int64(len(long)) != a.Held() || dropped != 2000-a.Held() || a.Held() > 500 {
		t.Errorf("a long answer has %d bytes, holds %d, and %d are dropped", len(long), a.Held(), dropped)
	}
	a.Close()
	if b.Used() != 0 {
		t.Error("something is still charged")
	}
}
