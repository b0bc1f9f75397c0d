package reply

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/membudget"
)

// Small answers and answers to changes are counted and always sent. Other answers are refused
// without space.
func TestCharge(t *testing.T) {
	medium, long := strings.Repeat("m", 100<<10), strings.Repeat("l", 3<<20)
	for _, c := range []struct {
		name, method string
		v            any
		total, most  int64
		err          error
	}{
		{"with room", "GET", medium, 1 << 20, Max, nil},
		{"without room", "GET", medium, 100 << 10, Max, sandbox.ErrBusy},
		{"small without room", "GET", "small", 0, Max, nil},
		{"of a change without room", "POST", medium, 0, Max, nil},
		{"a change ended something", "DELETE", nil, 0, Max, nil},
		{"more than one request may hold", "GET", long, 1 << 30, 2 << 20, sandbox.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			budget := membudget.New(c.total)
			a := budget.Account(c.most)
			ctx := membudget.With(t.Context(), a)
			if err := Charge(ctx, c.method, c.v); !errors.Is(err, c.err) || c.err == nil && err != nil {
				t.Errorf("got %v, want %v", err, c.err)
			}
			if held := a.Held(); c.err == nil && held != Size(c.v) || c.err != nil && held != 0 {
				t.Errorf("%d bytes are charged", held)
			}
			a.Close()
		})
	}
	if err := Charge(t.Context(), "GET", long); err != nil {
		t.Errorf("outside of a request: %v", err)
	}
	var later interface{ RetryAfter() time.Duration }
	if !errors.As(Full(), &later) || later.RetryAfter() <= 0 {
		t.Error("a refusal has no time to try again")
	}
}
