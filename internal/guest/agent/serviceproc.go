package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/account"
	"github.com/forkd/forkd/internal/guest/agent/command"
	"github.com/forkd/forkd/internal/guest/agent/identity"
	"github.com/forkd/forkd/internal/guest/agent/procgroup"
	"github.com/forkd/forkd/internal/guest/agent/reap"
	"github.com/forkd/forkd/internal/guest/agent/services"
	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// serviceProcess is the program of a service, with its descendants.
type serviceProcess struct {
	*reap.Child
	group *procgroup.Group // nil without control groups
}

var _ services.Process = (*serviceProcess)(nil)

// startService starts the command of a service.
func (a *Agent) startService(spec servicespec.Spec, out *os.File) (services.Process, error) {
	u, err := account.Lookup(cmp.Or(spec.User, a.rec.User(), fmt.Sprint(os.Getuid())))
	if err != nil {
		return nil, err
	}
	cmd, err := command.New(command.Spec{Program: spec.Command[0], Args: spec.Command[1:], Env: spec.Env, Cwd: spec.Cwd},
		u, a.rec)
	if err != nil {
		return nil, err
	}
	if out != nil {
		cmd.Stdout, cmd.Stderr = out, out
	}
	group, err := a.groups.New()
	if err != nil {
		return nil, err
	}
	if group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, group.FD()
	}
	child, err := a.reaper.Start(cmd)
	if err != nil {
		group.Release()
		return nil, a.broken.Explain(err)
	}
	return &serviceProcess{Child: child, group: group}, nil
}

// PID implements services.Process.
func (p *serviceProcess) PID() int { return p.Pid }

// Group implements services.Process.
func (p *serviceProcess) Group() string { return p.group.Name() }

// adoptService takes over the process of a service from an earlier program of this agent.
func (a *Agent) adoptService(pid int, group string) (services.Process, error) {
	g, err := a.groups.Adopt(group)
	if err != nil {
		return nil, err
	}
	return &serviceProcess{Child: a.reaper.Adopt(pid), group: g}, nil
}

// ExitCode implements services.Process.
func (p *serviceProcess) ExitCode() int {
	if st := p.Status(); st.Signaled() {
		return 128 + int(st.Signal())
	}
	return p.Status().ExitStatus()
}

// Signal implements services.Process.
func (p *serviceProcess) Signal(number int) { _ = p.SignalGroup(unix.Signal(number)) }

// Kill implements services.Process. It is called once.
func (p *serviceProcess) Kill() {
	defer p.group.Release()
	if p.group != nil && p.group.Kill() == nil {
		return
	}
	if p.HasEnded() {
		procgroup.KillSession(p.Pid) // the session's number is not reused while a member lives
		return
	}
	procgroup.KillTree(p.Pid)
}

// declareAll declares the services of an identity, and returns the step for its answer.
func (a *Agent) declareAll(ctx context.Context, b []byte) identity.Step {
	began := time.Now()
	var specs []servicespec.Spec
	err := json.Unmarshal(b, &specs)
	if err == nil {
		err = servicespec.CheckAll(specs)
	}
	for _, spec := range specs {
		if err == nil {
			err = a.services.Declare(ctx, spec)
		}
	}
	return identity.Step{Name: "services", Done: err == nil, Err: err, Took: time.Since(began)}
}
