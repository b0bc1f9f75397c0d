package engine

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary play the VMM: the engine starts it under that name. The tests thus
// have real processes, sockets and an agent that answers, without KVM.
func TestMain(m *testing.M) {
	if os.Args[0] == "forkd-vmm" {
		if err := fakeVMM(); err != nil {
			fmt.Fprintln(os.Stderr, "fake VMM:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Args[0] == "forkd-daemon" {
		err := doomedDaemon(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5])
		fmt.Fprintln(os.Stderr, "doomed daemon:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
