package kvmtest_test

import (
	"os"
	"testing"

	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// The bench itself, seen from inside: it is where /dev/kvm is real.
func TestBenchHasKVM(t *testing.T) {
	kvmtest.Require(t)
	if dir, err := os.Getwd(); err != nil || dir == "/" {
		t.Errorf("working directory is %q, %v", dir, err)
	}
}
