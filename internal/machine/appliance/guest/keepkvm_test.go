package guest

import (
	"errors"
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
	end := time.Now().Add(8 * time.Second)
	var busy sync.WaitGroup
	defer busy.Wait()
	for range 4 {
		busy.Go(func() {
			for time.Now().Before(end) {
				time.Sleep(50 * time.Microsecond) // through the scheduler
			}
		})
	}
	made := 0
	for time.Now().Before(end) {
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
