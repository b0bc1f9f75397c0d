package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/serial"
	"github.com/forkd/forkd/internal/vmmctl"
)

// consoleTail is how many lines of the console an error text carries.
const consoleTail = 12

// Console reads what the sandbox's serial console holds now. The caller closes
// it. A failed sandbox still has its console.
func (e *Engine) Console(id string) (io.ReadCloser, error) {
	b, _, err := e.find(id)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(b.dir, vmmctl.ConsoleLog))
	if err != nil {
		return nil, problem(ErrNotFound, "", "console of sandbox %s: %w", id, err)
	}
	return f, nil
}

// consolePoll is how often a console that is followed is looked at.
const consolePoll = 100 * time.Millisecond

// FollowConsole hands out what the console holds, from its last lines on, and
// then what comes, until the VM has ended or ctx does. lines < 0 means all that there is.
// An error of write ends it.
func (e *Engine) FollowConsole(ctx context.Context, id string, lines int, write func([]byte) error) error {
	b, _, err := e.find(id)
	if err != nil {
		return err
	}
	file, err := os.Open(filepath.Join(b.dir, vmmctl.ConsoleLog))
	if err != nil {
		return problem(ErrNotFound, "", "console of sandbox %s: %w", id, err)
	}
	defer file.Close()
	log := serial.NewFollower(file)
	if lines >= 0 {
		if err := log.Skip(lines); err != nil {
			return err
		}
	}
	if _, m, err := e.running(id); err == nil {
		return e.follow(ctx, log, m.proc.Done(), write)
	}
	ended := make(chan struct{})
	close(ended)
	return e.follow(ctx, log, ended, write)
}

// follow reads once more after the end, for what was written just before.
func (e *Engine) follow(ctx context.Context, log *serial.Follower, ended <-chan struct{}, write func([]byte) error) error {
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
		case <-e.background.Done():
			return ErrClosing
		case <-time.After(consolePoll):
		}
	}
}

// tailLines returns the last n lines of a log, without what a terminal would
// take as a command: it came from a guest and goes to a person.
func tailLines(path string, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 16 << 10
	st, err := f.Stat()
	if err != nil {
		return ""
	}
	b := make([]byte, min(most, st.Size()))
	k, _ := f.ReadAt(b, st.Size()-int64(len(b)))
	lines := strings.Split(strings.TrimSpace(printable(b[:k])), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func printable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r >= ' ' && r != 0x7f && (r < 0x80 || r >= 0xa0) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(string(b), "?"))
}

// lastLines and lastBytes bound what the log keeps of a console.
const (
	lastLines = 30
	lastBytes = 4 << 10
)

// logFailure keeps what it takes to understand a VM's end when its sandbox, and the
// console with it, has been deleted. dir is the VM's, and still there.
func (e *Engine) logFailure(info Info, reason, dir string) {
	tag, _ := info.Base()
	e.cfg.Logger.Warn("sandbox failed", "sandbox", info.ID, "snapshot", tag,
		"age", e.cfg.Now().Sub(info.CreatedAt).Round(time.Millisecond), "reason", reason,
		"console", lastWords(filepath.Join(dir, vmmctl.ConsoleLog)))
}

// lastWords is the console's end: whole lines, if one of them fits.
func lastWords(console string) string {
	said := tailLines(console, lastLines)
	if len(said) <= lastBytes {
		return said
	}
	said = said[len(said)-lastBytes:]
	if _, whole, ok := strings.Cut(said, "\n"); ok {
		return whole
	}
	return strings.ToValidUTF8(said, "") // cut within a character
}

// endError is the end of a VM as an error.
func endError(m *machine) error {
	return problem(ErrGuestGone, "", "%w: %s", errNoVM, endReason(m))
}

// endReason says in words how a VM ended. Precondition: proc.Done is closed, or
// will be soon: a VMM closes its socket a moment before it is reaped.
func endReason(m *machine) string {
	waitEnd(m, time.Second)
	exit := m.proc.Exit()
	switch exit.Kind {
	case vmmctl.ExitPowerOff:
		return "the guest powered off"
	case vmmctl.ExitReset:
		if line := panicLine(filepath.Join(m.dir, vmmctl.ConsoleLog)); line != "" {
			return "the guest's kernel panicked: " + line
		}
		return "the guest rebooted"
	case vmmctl.ExitKilled:
		if said := tailLines(filepath.Join(m.dir, vmmLog), 3); said != "" {
			return fmt.Sprintf("%s; it said: %s", exit.Reason, said)
		}
	}
	return exit.Reason
}

func waitEnd(m *machine, limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-m.proc.Done():
		return true
	case <-t.C:
		return false
	}
}

// oopsLine is how the kernel begins to tell of a fault, behind the time.
var oopsLine = regexp.MustCompile(`(?m)^(?:\[[ .0-9]+\] )?((?:BUG: |kernel BUG at |Oops: [a-z]|general protection fault).*)$`)

// panicLine is what the kernel panicked for; with the fault before it, if there was
// one, since then it only says "Fatal exception" or that init was killed.
func panicLine(console string) string {
	const mark = "Kernel panic - not syncing: "
	f, err := os.Open(console)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 4<<20))
	before, line, ok := bytes.Cut(b, []byte(mark))
	if !ok {
		return ""
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	said := oneLine(line)
	if oops := oopsLine.FindAllSubmatch(before, -1); len(oops) > 0 {
		said += ", after " + oneLine(oops[len(oops)-1][1])
	}
	return said
}

func oneLine(b []byte) string { return strings.TrimSpace(printable(b[:min(len(b), 200)])) }
