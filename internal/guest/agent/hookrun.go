package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/forkd/forkd/internal/guest/agent/account"
	"github.com/forkd/forkd/internal/guest/agent/command"
	"github.com/forkd/forkd/internal/guest/agent/defaults"
	"github.com/forkd/forkd/internal/guest/agent/identity"
	"github.com/forkd/forkd/internal/guest/agent/procgroup"
	"github.com/forkd/forkd/internal/guest/agent/reap"
)

// hookRunner runs fork hooks as root.
type hookRunner struct {
	reaper *reap.Reaper
	groups *procgroup.Groups
	rec    *defaults.Record
}

var _ identity.Runner = hookRunner{}

// RunHook implements identity.Runner.
func (h hookRunner) RunHook(ctx context.Context, program string, env map[string]string, limit time.Duration,
	most int) (int, string, error) {
	u, err := account.Lookup(fmt.Sprint(os.Getuid()))
	if err != nil {
		return -1, "", err
	}
	cmd, err := command.New(command.Spec{Program: program, Env: env, Cwd: "/"}, u, h.rec)
	if err != nil {
		return -1, "", err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return -1, "", fmt.Errorf("make pipe: %w", err)
	}
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	group, err := h.groups.New()
	if err != nil {
		_ = w.Close()
		return -1, "", err
	}
	defer group.Release()
	if group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, group.FD()
	}
	child, err := h.reaper.Start(cmd)
	_ = w.Close()
	if err != nil {
		return -1, "", fmt.Errorf("start: %w", err)
	}
	said := make(chan string)
	go func() { said <- tail(r, most) }() // ends with the deadline below at the latest
	err = awaitHook(ctx, child, group, limit)
	// Processes left running by a hook may hold its output open.
	_ = r.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	out := <-said
	if err != nil {
		return -1, out, err
	}
	return child.Status().ExitStatus(), out, nil
}

func awaitHook(ctx context.Context, child *reap.Child, group *procgroup.Group, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var err error
	select {
	case <-child.Done():
		return nil
	case <-timer.C:
		err = fmt.Errorf("ran longer than %s and was killed", limit)
	case <-ctx.Done():
		err = fmt.Errorf("killed: %w", ctx.Err())
	}
	if group == nil || group.Kill() != nil {
		procgroup.KillTree(child.Pid)
	}
	<-child.Done()
	return err
}

// tail reads to the end and returns the last bytes.
func tail(r *os.File, most int) string {
	buf := make([]byte, 2048)
	var kept []byte
	for {
		n, err := r.Read(buf)
		kept = append(kept, buf[:n]...)
		if len(kept) > most {
			kept = append(kept[:0], kept[len(kept)-most:]...)
		}
		if err != nil {
			return string(kept)
		}
	}
}
