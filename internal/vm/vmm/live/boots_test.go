package live

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// Guests that only boot, without captures or restores, four at a time on few CPUs. The rate of
// failures and kernel complaints is the rate of the CPU itself, which may be emulated
// (docs/operate/machine.md).
func TestBootsUnderLoad(t *testing.T) {
	kvmtest.Soak(t)
	span, err := time.ParseDuration(os.Getenv(kvmtest.SoakVariable))
	checkOK(t, err)
	var boots, failed atomic.Int64
	t.Cleanup(func() { t.Logf("soak: plain_boots=%d plain_boots_failed=%d", boots.Load(), failed.Load()) })
	for range 4 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for end := time.Now().Add(span); time.Now().Before(end); {
				whole := t.Run("", func(t *testing.T) {
					boots.Add(1)
					v := bootServe(t, vmspec.Shape{MemoryMiB: 128, VCPUs: 1}, nil)
					for range 3 {
						_, err := v.try("dmesg")
						checkOK(t, err)
					}
					if h := v.Status().Health.Hang; h != "" {
						t.Error(h)
					}
				})
				if !whole {
					failed.Add(1)
				}
			}
		})
	}
}
