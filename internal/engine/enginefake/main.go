package enginefake

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package. Its binary plays the VMM, too: the engine starts it under that
// name. The tests thus have real processes, sockets and an agent that answers, without KVM. It also
// plays daemons that die at a step of one of the works.
func Main(m *testing.M, works map[string]Doom) {
	if os.Args[0] == "forkd-vmm" {
		if err := fakeVMM(); err != nil {
			fmt.Fprintln(os.Stderr, "fake VMM:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Args[0] == "forkd-daemon" {
		err := doomedDaemon(os.Args[1:], works)
		fmt.Fprintln(os.Stderr, "doomed daemon:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
