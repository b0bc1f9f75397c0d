package op

import (
	"context"
	"fmt"
	"time"

	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// programLimit bounds a program that runs for the sake of what it touches.
const programLimit = 10 * time.Second

// firstUseLimit is the same for what an image has been given for that.
const firstUseLimit = 30 * time.Second

// cachedByShell reads what a child's first program will want of the disk. The shell that it starts reads
// no profile, as what is in those may do anything: they are only read.
const cachedByShell = `cat /etc/profile /etc/profile.d/*.sh /etc/bash.bashrc ~/.profile ~/.bash_profile ~/.bashrc ` +
	`</dev/null >/dev/null 2>&1; bash -c :`

// cacheShell has the parent start a shell, so that its children find that and the C library in the page
// cache that they share, instead of reading each its own from the disk: it is most of what their first
// program takes. An image without a shell has none of it.
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

// runProgram has a child do what is likely to be asked of it first, for the sake of what it touches: what
// the image says, or else start a shell as E2B's clients do.
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
		return fmt.Errorf("first_use did not end within %s", firstUseLimit)
	case r.ExitCode != 0:
		return fmt.Errorf("first_use: %s: %s%s", r.Status, guesttext.Tail(r.Stdout), guesttext.Tail(r.Stderr))
	}
	return nil
}
