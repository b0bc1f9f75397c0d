package kvmtest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// Seed is another one in every run, so that random tests go other ways each time. It is
// printed; FORKD_TEST_SEED sets it, to have a failure again.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("FORKD_TEST_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("FORKD_TEST_SEED: %v", err)
		}
	}
	t.Logf("FORKD_TEST_SEED=%d", seed)
	return seed
}

// Random is a source of random numbers from a Seed, of its own for each n.
func Random(seed, n uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, n)) // #nosec G404 -- tests repeat their numbers
}
