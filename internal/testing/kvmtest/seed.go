package kvmtest

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// SeedVariable holds the seed of a run. `make test` sets it for all its tests.
const SeedVariable = "FORKD_TEST_SEED"

// DrawVariable is 1 where Drawn may skip tests: in the KVM tests of `make test`.
const DrawVariable = "FORKD_TEST_DRAW"

// Drawn skips the test in half of the runs of `make test`, by the seed and the test's name. A soak and a run by hand
// have all tests. It is for tests of many seconds whose main path another test takes in each run. Call it after
// Require.
func Drawn(t testing.TB) {
	t.Helper()
	if os.Getenv(DrawVariable) != "1" || os.Getenv(SoakVariable) != "" {
		return
	}
	if seed := givenSeed(t); !drawn(seed, t.Name()) {
		t.Skipf("%s not drawn by %s=%d; `make soak` runs it", SoakMark, SeedVariable, seed)
	}
}

func drawn(seed uint64, test string) bool {
	name := fnv.New64a()
	_, _ = name.Write([]byte(test))
	return Random(seed, name.Sum64()).IntN(2) == 0
}

// Seed is another one in every run, so that random tests go other ways each time. It is
// printed; FORKD_TEST_SEED sets it, to have a failure again.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := givenSeed(t)
	t.Logf("FORKD_TEST_SEED=%d", seed)
	return seed
}

func givenSeed(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv(SeedVariable); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("FORKD_TEST_SEED: %v", err)
		}
	}
	return seed
}

// Random is a source of random numbers from a Seed, of its own for each n.
func Random(seed, n uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, n)) // #nosec G404 -- tests repeat their numbers
}
