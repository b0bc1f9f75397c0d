package server

import (
	"github.com/forkd/forkd/internal/confine/jail"
	"github.com/forkd/forkd/internal/confine/jail/stage"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/vm/spawner/wire"
	vmwire "github.com/forkd/forkd/internal/vm/vmctl/wire"
)

// argInit is the name of started processes until they execute their program.
const argInit = "init"

// become returns the calls by which a process enters the jail and becomes a VMM.
func become(m wire.Message, uid uint32) (*stage.Script, error) {
	start := vmwire.Start{
		Shape: m.Shape, Prewarm: m.Prewarm, Proc: true, Userfaultfd: m.Files&wire.Userfaultfd != 0, Seccomp: m.Seccomp,
	}
	args, err := start.Args()
	if err != nil {
		return nil, err
	}
	env := vmwire.Environment()
	if m.Files&wire.Failpoints != 0 {
		env = append(env, failpoint.Environ(vmwire.FDFailpoints)...)
	}
	plan := jail.Plan{Want: m.Want, UID: uid, FileSize: m.FileSize, Seccomp: m.Seccomp, TimerSlack: vmwire.MonitorSlack}
	script, failed := jail.Enter(plan, placesOfJail, args, env)
	if failed != nil {
		return nil, failed
	}
	return script, nil
}

// placesOfJail are the descriptors used by the jail.
var placesOfJail = jail.FDs{Proc: vmwire.FDProc, Program: fdProgram, Report: fdReport}
