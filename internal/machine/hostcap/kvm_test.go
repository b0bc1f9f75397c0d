package hostcap

import (
	"context"
	"testing"

	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// If the test environment claims a real KVM, the measurement must agree.
func TestRealKVMIsUsable(t *testing.T) {
	kvmtest.Require(t)
	f := ProbeKVM(context.Background())
	if got := f.Decide(); got.Where != Host {
		t.Errorf("%s: %+v", got.Reason, f)
	}
}
