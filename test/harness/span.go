package harness

import (
	"os"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// Soaking tells whether the variable is set.
func Soaking() bool { return os.Getenv(kvmtest.SoakVariable) != "" }

// Patience is for what must happen at some time: slow machines are not wrong, and in
// a soak all suites share one.
func Patience() time.Duration {
	if Soaking() {
		return 5 * patience
	}
	return patience
}

// Span is that time; short without the variable.
func Span(t testing.TB, short time.Duration) time.Duration {
	t.Helper()
	given := os.Getenv(kvmtest.SoakVariable)
	if given == "" {
		return short
	}
	long, err := time.ParseDuration(given)
	if err != nil {
		t.Fatalf("%s: %v", kvmtest.SoakVariable, err)
	}
	return long
}
