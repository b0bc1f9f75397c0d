package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/vm/vmm/live"
)

// confine takes from this process what a VMM does not do once its VM exists, and more from the
// threads of vCPUs (docs/inside/vmm.md#system-calls). What cannot be done is said, and the VM goes on:
// whether it may is the daemon's to decide.
func confine(mode seccomp.Mode, vm *live.Controller) seccomp.Confinement {
	if mode == seccomp.Off {
		return seccomp.Confinement{Why: "the filter is off"}
	}
	openAhead()
	err := seccomp.VM.Install(mode, seccomp.AllThreads)
	if err == nil {
		err = vm.OnVCPUThreads(func() error { return seccomp.VCPU.Install(mode, seccomp.ThisThread) })
	}
	switch {
	case err != nil:
		warn(fmt.Errorf("confine: %w", err))
		return seccomp.Confinement{Why: err.Error()}
	case mode != seccomp.On:
		return seccomp.Confinement{Why: "the filter's mode is " + string(mode)}
	}
	return seccomp.Confinement{Confined: true}
}

// openAhead does what would otherwise be done when it is first needed, and no more then.
func openAhead() {
	_, _ = time.Now().Zone() // where no TZ is set it reads the file of the time zone, for the hour of gVisor's warnings
	// A process that is killed by its filter leaves a core otherwise: its guest's memory.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
}
