package agent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/forkd/forkd/internal/guest/agent/handover"
	"github.com/forkd/forkd/internal/guest/agentproto/updatewire"
	"github.com/forkd/forkd/internal/leaf/ctxsleep"
)

// Limits of an update.
const (
	updateLimit = time.Minute            // to receive the program, and to send an answer
	trialLimit  = 30 * time.Second       // for the new program to say that it can take over
	quietLimit  = 4 * time.Second        // for requests and commands to settle
	quietPause  = 5 * time.Millisecond   // between two tries
	goingLimit  = 500 * time.Millisecond // to send the last answer, while the agent stands still
)

// UpdateConfig configures updates of the agent's program. All fields are required.
type UpdateConfig struct {
	Dir string // directory for the program, in memory and for root only
	// Exec runs a program in place of this process. It returns only on failure.
	Exec func(b *handover.Bundle, program *os.File, state any, ready func() error) error
	// Own is the state of the caller of New, for its next program.
	Own func(b *handover.Bundle) any
}

// ServeUpdates takes new programs of the agent on l, one after another, until ctx ends. See package
// updatewire. It closes l.
func (a *Agent) ServeUpdates(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	steady := steady{l, a.cfg.Log}
	for {
		c, err := steady.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("serve updates: %w", err)
		}
		if err := a.takeUpdate(ctx, c); err != nil {
			a.cfg.Log("update: %v", err)
		}
	}
}

// takeUpdate answers one connection and closes it. It returns only if this program goes on.
func (a *Agent) takeUpdate(ctx context.Context, c net.Conn) error {
	defer c.Close()
	if err := fromHost(c.RemoteAddr()); err != nil {
		return err
	}
	err := a.update(ctx, c)
	_ = c.SetWriteDeadline(time.Now().Add(updateLimit))
	return errors.Join(err, updatewire.WriteAnswer(c,
		updatewire.Answer{Code: updatewire.Refused, Reason: text(err.Error())}))
}

// update replaces this program. It returns the reason why it did not.
func (a *Agent) update(ctx context.Context, c net.Conn) error {
	_ = c.SetReadDeadline(time.Now().Add(updateLimit))
	h, err := updatewire.ReadHeader(c)
	if err != nil {
		return err
	}
	path, err := receive(a.cfg.Update.Dir, c, h)
	if err != nil {
		return err
	}
	defer os.Remove(path) // the new program links it to its final name
	if err := a.try(path); err != nil {
		return err
	}
	program, err := os.Open(path)
	if err != nil {
		return err
	}
	defer program.Close()
	going := func() error {
		_ = c.SetWriteDeadline(time.Now().Add(goingLimit))
		return updatewire.WriteAnswer(c, updatewire.Answer{Code: updatewire.Going})
	}
	for end := time.Now().Add(quietLimit); ; {
		err := a.exec(program, going)
		if !errors.Is(err, errBusy) || time.Now().After(end) || !ctxsleep.For(ctx, quietPause) {
			return err
		}
	}
}

// receive writes a program to a new file in dir, and checks its digest.
func receive(dir string, r io.Reader, h updatewire.Header) (path string, err error) {
	f, err := os.CreateTemp(dir, "forkd-agent-*")
	if err != nil {
		return "", fmt.Errorf("make a file for the program: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, sum), r, h.Size); err != nil {
		return "", fmt.Errorf("receive the program: %w", err)
	}
	if [sha256.Size]byte(sum.Sum(nil)) != h.Digest {
		return "", errors.New("the program is damaged: its digest is another")
	}
	return f.Name(), f.Chmod(0o755) // #nosec G302 -- a program for every user of the guest
}

// TrialFlag makes the program check only that it can take over a state of the version given.
const TrialFlag = "takes-over"

// try runs the new program beside this one.
func (a *Agent) try(path string) error {
	said, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer said.Close()
	cmd := exec.Command(path, fmt.Sprintf("--%s=%d", TrialFlag, handover.Version))
	cmd.Stderr = theirs
	child, err := a.reaper.Start(cmd)
	_ = theirs.Close()
	if err != nil {
		return fmt.Errorf("the program does not start: %w", err)
	}
	limit := time.NewTimer(trialLimit)
	defer limit.Stop()
	select {
	case <-child.Done():
	case <-limit.C:
		_ = child.Signal(9)
		<-child.Done()
	}
	if st := child.Status(); !st.Exited() || st.ExitStatus() != 0 {
		_ = said.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		b, _ := io.ReadAll(io.LimitReader(said, 400))
		return fmt.Errorf("the program does not run here (%s): %s", filepath.Base(path), b)
	}
	return nil
}
