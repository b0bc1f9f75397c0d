package harness

import (
	"os"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// Soaking reports whether the variable is set.
func Soaking() bool { return os.Getenv(kvmtest.SoakVariable) != "" }

// Patience limits waits for events. It is long, because a slow machine is no failure; in a soak all
// suites share one machine.
func Patience() time.Duration {
	if Soaking() {
		return 5 * patience
	}
	return patience
}

// Span returns the duration from the variable, or short if it is unset.
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
