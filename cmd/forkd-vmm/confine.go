package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/vm/vmm/live"
)

// confine drops the rights of this process that a VMM does not need once its VM exists, and more
// rights of the vCPU threads (docs/inside/vmm.md#system-calls). If a step fails, confine reports it
// and the VM keeps running: the daemon decides whether it may.
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

// openAhead does work now that the filter would prevent later.
func openAhead() {
	_, _ = time.Now().Zone() // without TZ it reads the time zone file, which gVisor's warnings need
	// Without this limit a process killed by its filter leaves a core file with its guest's memory.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
}
