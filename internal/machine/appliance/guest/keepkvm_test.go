package guest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/internal/vm/kvm"
)

// Without keepKVM this test kills an emulated machine within seconds: each first and each last VM makes the
// kernel patch its scheduler while other CPUs are executing it.
func TestFirstAndLastVMsDoNotHurtTheMachine(t *testing.T) {
	kvmtest.Require(t)
	sys, err := kvm.Open("/dev/kvm")
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close()
	made := 0
	for end := keepSchedulerBusy(t, 4*time.Second); time.Now().Before(end); {
		vm, err := sys.CreateVM()
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := vm.Close(); err != nil {
			t.Fatal(err)
		}
		made++
	}
	if made == 0 {
		t.Error("no VM was made")
	}
	t.Logf("%d VMs came and went", made)
}

// Without keepQuota this test kills an emulated machine, too.
func TestFirstAndLastQuotasDoNotHurtTheMachine(t *testing.T) {
	kvmtest.Require(t)
	limit := filepath.Join("/sys/fs/cgroup", "quota-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(limit, 0o755); errors.Is(err, fs.ErrPermission) {
		t.Log("not in a machine, where this process is root: ", err)
		return
	} else if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(limit)
	set := 0
	for end := keepSchedulerBusy(t, 4*time.Second); time.Now().Before(end); set++ {
		for _, quota := range []string{"50000 100000", "max 100000"} {
			if err := os.WriteFile(filepath.Join(limit, "cpu.max"), []byte(quota), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d quotas came and went", set)
}

// keepSchedulerBusy makes threads sleep and wake up for some time, and returns its end.
func keepSchedulerBusy(t *testing.T, span time.Duration) time.Time {
	end := time.Now().Add(span)
	var busy sync.WaitGroup
	t.Cleanup(busy.Wait)
	for range 4 {
		busy.Go(func() {
			for time.Now().Before(end) {
				time.Sleep(50 * time.Microsecond) // through the scheduler
			}
		})
	}
	return end
}
