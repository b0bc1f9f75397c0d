package guest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/vm/serial"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// Console returns the current content of the sandbox's serial console, with the times of its lines
// as marks of package linetime. The caller closes it. A failed sandbox still has its console.
func (c *Calls) Console(id string) (io.ReadCloser, error) {
	b, _, err := c.cfg.Sandboxes.Find(id)
	if err != nil {
		return nil, err
	}
	return openConsole(b)
}

// openConsole opens the console's file. A paused sandbox has no console.
func openConsole(b *sandboxes.Sandbox) (*os.File, error) {
	dir := b.Dir()
	if dir == "" && b.Info().Status == sandbox.StatusFailed {
		return nil, sandbox.Errorf(sandbox.ErrNotFound, "", "console of sandbox %s: it is gone: %s", b.ID(), b.Info().Reason)
	}
	if dir == "" {
		return nil, sandbox.Paused(b.Info())
	}
	f, err := os.Open(filepath.Join(dir, client.ConsoleLog))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.ErrNotFound, "", "console of sandbox %s: %w", b.ID(), err)
	}
	return f, nil
}

// consolePoll is the poll interval of a followed console.
const consolePoll = 100 * time.Millisecond

// FollowConsole writes the console's content, starting with its last lines, and then new output,
// until the VM or ctx has ended, with marks as in Console. If lines is negative, it writes the whole content. It stops at an
// error of write.
func (c *Calls) FollowConsole(ctx context.Context, id string, lines int, write func([]byte) error) error {
	b, _, err := c.cfg.Sandboxes.Find(id)
	if err != nil {
		return err
	}
	file, err := openConsole(b)
	if err != nil {
		return err
	}
	defer file.Close()
	log := serial.NewFollower(file)
	if lines >= 0 {
		if err := log.Skip(lines); err != nil {
			return err
		}
	}
	if _, m, err := c.cfg.Sandboxes.Running(id); err == nil {
		return c.follow(ctx, log, m.Proc.Done(), write)
	}
	ended := make(chan struct{})
	close(ended)
	return c.follow(ctx, log, ended, write)
}

// follow reads once more after the end, for the last output.
func (c *Calls) follow(ctx context.Context, log *serial.Follower, ended <-chan struct{},
	write func([]byte) error) error {
	buf := make([]byte, 32<<10)
	for last := false; ; {
		n, err := log.Read(buf)
		switch {
		case n > 0:
			if err := write(buf[:n]); err != nil {
				return err
			}
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return err
		case last:
			return nil
		}
		select {
		case <-ended:
			last = true
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.cfg.Closing.Done():
			return sandbox.ErrClosing
		case <-time.After(consolePoll):
		}
	}
}
