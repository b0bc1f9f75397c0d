package op

import (
	"context"
	"fmt"
	"time"

	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// programLimit bounds a program run only to record the pages it touches.
const programLimit = 10 * time.Second

// firstUseLimit is the same limit for an image's first-use command.
const firstUseLimit = 30 * time.Second

// cachedByShell reads the files a child's first program needs from the disk. The shell it starts
// reads no profiles, since these may do anything: the command only reads their bytes.
const cachedByShell = `cat /etc/profile /etc/profile.d/*.sh /etc/bash.bashrc ~/.profile ~/.bash_profile ~/.bashrc ` +
	`</dev/null >/dev/null 2>&1; bash -c :`

// cacheShell makes the parent start a shell. The children then find the shell and the C library in
// the page cache that they share, so they need not read them from the disk. The reads are most of
// the time of their first program. It has no effect in an image without a shell.
func (c *createOp) cacheShell(ctx context.Context) {
	if c.e.cfg.NoWorkingSet {
		return
	}
	_, err := c.agent.Exec(ctx, agentclient.ExecRequest{
		Args: []string{"sh", "-c", cachedByShell}, Timeout: programLimit, MaxOutput: 1,
	})
	if err != nil {
		c.e.cfg.Logger.Debug("the parent starts no shell", "tag", c.req.Tag, "err", err)
	}
}

// runProgram runs a likely first program in a child to record the pages it touches. It runs the
// image's first-use command, or else starts a shell the way E2B's clients do.
func (c recorder) runProgram(ctx context.Context, m *launch.VM) (err error) {
	if first := c.firstUse; first != "" {
		return c.useFirst(ctx, m, first)
	}
	for _, args := range [][]string{{"/bin/bash", "-l", "-c", ":"}, {"/bin/sh", "-c", ":"}} {
		_, err = m.Agent.Exec(ctx, agentclient.ExecRequest{Args: args, Timeout: programLimit, MaxOutput: 1})
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("run a shell: %w", err)
}

func (c recorder) useFirst(ctx context.Context, m *launch.VM, command string) error {
	r, err := m.Agent.Exec(ctx, agentclient.ExecRequest{
		Args: []string{"sh", "-c", command}, Timeout: firstUseLimit, MaxOutput: tailBytes,
	})
	switch {
	case err != nil:
		return fmt.Errorf("first_use: %w", err)
	case r.TimedOut:
		return fmt.Errorf("first_use timed out after %s", firstUseLimit)
	case r.ExitCode != 0:
		return fmt.Errorf("first_use: %s: %s%s", r.Status, guesttext.Tail(r.Stdout), guesttext.Tail(r.Stderr))
	}
	return nil
}
